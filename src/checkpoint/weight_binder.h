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
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/tensor_names.h"
#include "checkpoint/weight_format.h"
#include "quant/matrix_format.h"
#include "quant/scale_stats.h"
#include "tensor/shape.h"

namespace nibble::checkpoint {

// A matrix found in the files, not yet read.
struct MatrixSource {
  std::string name;  // without suffix
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  WeightFormat format;
  WeightParts parts;  // parts.weight.stored == nullptr: missing or refused, and noted as such

  bool found() const { return parts.weight.stored != nullptr; }
  std::int64_t bytes() const;  // of codes, scales and global scale, as stored
};

// The scales of one matrix, kept for the log: a wide span of exponents decides what is exact later.
struct ScaleRecord {
  std::string name;
  quant::Format format = quant::Format::kBF16;
  quant::ScaleStats stats;
};

// What happens at a problem: the first one throws, or all are gathered in problems().
enum class OnProblem { kThrow, kCollect };

// Used by one thread at a time, except that read() may run on several.
class WeightBinder {
 public:
  // `checkpoint` must outlive the binder. A problem: two stored tensors that are spellings of the same
  // canonical one; tensors of a layout that is refused by name (known_layouts.h).
  explicit WeightBinder(const Checkpoint& checkpoint, OnProblem on_problem = OnProblem::kThrow);

  // The matrix NAME.weight with what belongs to it: locate_matrix and read in one, and a line in
  // scale_records().
  //
  // The format is decided by what is in the files, for a matrix of `rows` x `cols`: weight_format.h has
  // the table, matrix_reader.h what is refused in the bytes. A missing weight or scale is noted for
  // finish(), and a matrix of zeros stands in for it (bf16), so that several can be reported at once;
  // the eighth, or a stand-in beyond 64 MiB in all, throws.
  quant::HostMatrix matrix(std::string_view name, std::int64_t rows, std::int64_t cols);

  // The gate and the up projection of one expert. In NVFP4 a fused product applies one global scale to
  // both: where the files name it .weight_scale_2 (ModelOpt, which shares it) two different ones are
  // refused; compressed-tensors files may differ, each keeps its own, and a note says so.
  std::pair<quant::HostMatrix, quant::HostMatrix> gate_and_up(std::string_view gate,
                                                              std::string_view up,
                                                              std::int64_t rows, std::int64_t cols);

  // Header facts and the ledger only, no bytes: cheap.
  MatrixSource locate_matrix(std::string_view name, std::int64_t rows, std::int64_t cols);
  // The same for a tensor that locate_matrix's vector_f32() or ints() would read.
  TensorSource locate(std::string_view name, const tensor::Shape& shape, bool integers = false);

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

  // True when both stored tensors exist and hold the same dtype, shape and bytes. Names are canonical;
  // neither is used up by it.
  bool same_bytes(std::string_view a, std::string_view b) const;

  // True when a tensor's canonical name begins with `prefix` ("mtp."), used or not.
  bool has(std::string_view prefix) const;

  // Tensors whose name begins with `prefix` and that have not been used will not be; one line in
  // notes() says why.
  void declare_unused(std::string_view prefix, std::string_view reason);

  // Throws when a tensor was missing, or when one in the files was neither used nor declared
  // unused; up to eight names of each, and how many there are. Adds lines to notes() about tensors
  // that are known and not used. Call it once, after the last weight.
  void finish();

  const Checkpoint& checkpoint() const { return checkpoint_; }
  const std::vector<std::string>& notes() const { return notes_; }
  const std::vector<ScaleRecord>& scale_records() const { return scale_records_; }
  // A line for each format among them: exponents of all scales, and the widest span in one matrix.
  std::vector<std::string> scale_lines() const;
  const std::vector<std::string>& problems() const { return problems_; }  // kCollect

 private:
  enum class Use { kNone, kUsed, kUnused };
  struct Entry {
    TensorSource source;
    Use use = Use::kNone;
  };

  void problem(std::string text);
  void refuse_double_spellings();
  WeightParts take_parts(const std::string& name);
  std::string left_over_message() const;
  const Entry* find(std::string_view name) const;  // null when absent
  std::vector<Entry>::const_iterator first_not_below(std::string_view name) const;
  TensorSource take(std::string_view name);  // stored == nullptr when absent
  void note_missing(std::string_view name, const tensor::Shape& shape, std::int64_t stand_in_bytes,
                    std::string_view remark = {});
  std::string missing_message() const;

  const Checkpoint& checkpoint_;
  std::vector<Entry> entries_;  // sorted by canonical name
  std::vector<std::string> missing_;
  std::vector<std::string> notes_;
  std::vector<std::string> problems_;
  std::vector<ScaleRecord> scale_records_;
  OnProblem on_problem_;
  std::int64_t stand_in_bytes_ = 0;
  std::int64_t unused_input_scales_ = 0;
  std::int64_t unequal_global_scales_ = 0;  // pairs of gate and up
  std::string first_unequal_;
};

}  // namespace nibble::checkpoint
