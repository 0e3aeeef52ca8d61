// The ledger between a checkpoint's tensors and a model's weights: every tensor in the files is
// used once or declared unused, every weight the model asks for is filled once, and anything else
// is refused.
//
//   Checkpoint checkpoint = Checkpoint::open(folder);
//   WeightBinder binder(checkpoint);
//   HostMatrix wq_a = binder.matrix("layers.0.attn.wq_a", q_lora_rank, hidden_size);
//   std::vector<float> norm = binder.vector_f32("layers.0.attn_norm.weight", {hidden_size});
//   ...
//   binder.finish();  // throws unless everything fitted
//
// Names are canonical (tensor_names.h). Errors are CheckpointError naming file, tensor, expected
// and found.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/tensor_names.h"
#include "quant/matrix_format.h"
#include "tensor/shape.h"

namespace nibble::checkpoint {

// A matrix found in the files, not yet read.
struct MatrixSource {
  std::string name;  // without suffix
  quant::Format format = quant::Format::kBF16;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  TensorSource weight;  // stored == nullptr: missing, and noted as such
  TensorSource scale;   // stored == nullptr for kF32 and kBF16
};

// Used by one thread at a time, except that read() may run on several.
class WeightBinder {
 public:
  // `checkpoint` must outlive the binder. Throws when two stored tensors are spellings of the same
  // canonical one.
  explicit WeightBinder(const Checkpoint& checkpoint);

  // The matrix NAME.weight, with NAME.scale where its format has one: locate_matrix and read in
  // one.
  //
  // The format is decided by what is in the files, for a matrix of `rows` x `cols`:
  //   I8 or U8 [rows, cols/2],  scale F8_E8M0 or U8 [rows, cols/32]               kMxfp4
  //   F8_E4M3 [rows, cols],     scale F8_E8M0 [ceil(rows/128), ceil(cols/128)]    kFp8Block128
  //                             the same in F32 or BF16, if each is a power of two of E8M0's range
  //   BF16 [rows, cols]                                                           kBF16
  //   F32 [rows, cols], or F16 widened                                            kF32
  // Everything else is refused: another shape or dtype, a scale too many, a NaN or infinity, a
  // scale byte so large that a weight could leave fp32's range. A missing weight or scale is noted
  // for finish(), and a matrix of zeros stands in for it (bf16), so that several can be reported at
  // once; the eighth, or a stand-in beyond 64 MiB in all, throws.
  quant::HostMatrix matrix(std::string_view name, std::int64_t rows, std::int64_t cols) {
    return read(locate_matrix(name, rows, cols));
  }

  // Header facts and the ledger only, no bytes: cheap.
  MatrixSource locate_matrix(std::string_view name, std::int64_t rows, std::int64_t cols);

  // Reads and checks the bytes. May run on several threads.
  quant::HostMatrix read(const MatrixSource& source) const;

  // F32, or BF16 and F16 widened, all finite, of exactly this shape. `name` is the full name
  // ("layers.0.attn.attn_sink", "norm.weight"). Missing: zeros, as for matrix().
  std::vector<float> vector_f32(std::string_view name, const tensor::Shape& shape);

  // I64, or I32 widened, of exactly this shape, each in [lowest, highest]. Missing: zeros, as for
  // matrix().
  std::vector<std::int64_t> ints(std::string_view name, const tensor::Shape& shape,
                                 std::int64_t lowest = std::numeric_limits<std::int64_t>::min(),
                                 std::int64_t highest = std::numeric_limits<std::int64_t>::max());

  // True when a tensor's canonical name begins with `prefix` ("mtp."), used or not.
  bool has(std::string_view prefix) const;

  // Tensors whose name begins with `prefix` and that have not been used will not be; one line in
  // notes() says why.
  void declare_unused(std::string_view prefix, std::string_view reason);

  // Throws when a tensor was missing, or when one in the files was neither used nor declared
  // unused; up to eight names of each, and how many there are. Call it once, after the last weight.
  void finish() const;

  const std::vector<std::string>& notes() const { return notes_; }

 private:
  enum class Use { kNone, kUsed, kUnused };
  struct Entry {
    TensorSource source;
    Use use = Use::kNone;
  };

  const Entry* find(std::string_view name) const;  // null when absent
  std::vector<Entry>::const_iterator first_not_below(std::string_view name) const;
  TensorSource take(std::string_view name);  // stored == nullptr when absent
  void refuse_other_formats(const std::string& name) const;
  void note_missing(std::string_view name, const tensor::Shape& shape, std::int64_t stand_in_bytes,
                    std::string_view remark = {});
  std::string missing_message() const;

  const Checkpoint& checkpoint_;
  std::vector<Entry> entries_;  // sorted by canonical name
  std::vector<std::string> missing_;
  std::vector<std::string> notes_;
  std::int64_t stand_in_bytes_ = 0;
};

}  // namespace nibble::checkpoint
