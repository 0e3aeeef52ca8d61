// Every format from every spelling of its tensors, read to the last bit; and everything about them
// that must be refused, naming tensor, expected and found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "checkpoint/checkpoint.h"
#include "checkpoint/testing/mini_checkpoint.h"
#include "nibble/status.h"
#include "quant/nvfp4.h"

namespace nibble::checkpoint {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using quant::Format;
using quant::HostMatrix;
using tensor::DType;
using Tensors = std::vector<TensorSpec>;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kName = "layers.7.ffn.experts.3.w1";
constexpr std::int64_t kRows = 48, kCols = 256;

std::string shape_bytes(std::int64_t rows, std::int64_t cols) {
  return bytes_of(std::vector<std::int64_t>{rows, cols});
}

HostMatrix sample(Format format, DType scale_dtype) {
  return quant::encode_matrix(format, kRows, kCols, ramp(kRows * kCols), scale_dtype);
}
HostMatrix sample(Format format) {
  return sample(format, quant::traits(format).scale_dtype);
}

// The tensors of kName with any suffixes and tags.
struct Tags {
  std::string weight = ".weight", dtype, scale = ".scale", scale_dtype;
};
Tensors tensors_of(const HostMatrix& m, const Tags& tags) {
  const bool wide = m.format == Format::kInt4G128 || m.format == Format::kInt4G32;
  const bool half = wide || m.format == Format::kMxfp4 || m.format == Format::kNvfp4;
  const quant::FormatTraits& t = quant::traits(m.format);
  const std::string name = kName;
  return {{name + tags.weight,
           tags.dtype,
           {m.rows, wide   ? m.cols / 8
                    : half ? m.cols / 2
                           : m.cols},
           bytes_of(m.data)},
          {name + tags.scale,
           tags.scale_dtype,
           {(m.rows + t.block_rows - 1) / t.block_rows, m.cols / t.block_cols},
           bytes_of(m.scales)}};
}

Tensors modelopt_nvfp4(const HostMatrix& m, const std::vector<std::int64_t>& global_shape = {}) {
  Tensors t = tensors_of(m, {".weight", "U8", ".weight_scale", "F8_E4M3"});
  t.push_back(f32(std::string(kName) + ".weight_scale_2", global_shape, {m.global_scale}));
  t.push_back(f32(std::string(kName) + ".input_scale", global_shape, {0.01f}));
  return t;
}

Tensors compressed_nvfp4(const HostMatrix& m) {
  Tensors t = tensors_of(m, {".weight_packed", "U8", ".weight_scale", "F8_E4M3"});
  t.push_back(f32(std::string(kName) + ".weight_global_scale", {1}, {1.0f / m.global_scale}));
  t.push_back(f32(std::string(kName) + ".input_global_scale", {1}, {100.0f}));
  return t;
}

Tensors packed_int4(const HostMatrix& m) {
  Tensors t = tensors_of(m, {".weight_packed", "I32", ".weight_scale",
                             std::string(tensor::dtype_name(m.scale_dtype))});
  t.push_back({std::string(kName) + ".weight_shape", "I64", {2}, shape_bytes(m.rows, m.cols)});
  return t;
}

struct Loaded {
  HostMatrix matrix;
  std::vector<std::string> notes;
};
Loaded load(const Tensors& tensors, std::int64_t rows = kRows, std::int64_t cols = kCols) {
  const TempFolder folder;
  folder.write("model.safetensors", safetensors_bytes(tensors));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  WeightBinder binder(checkpoint);
  Loaded out{binder.matrix(kName, rows, cols), {}};
  binder.finish();
  out.notes = binder.notes();
  return out;
}

void expect_same(const HostMatrix& found, const HostMatrix& expected) {
  EXPECT_EQ(found.format, expected.format);
  EXPECT_EQ(found.scale_dtype, expected.scale_dtype);
  EXPECT_EQ(found.global_scale, expected.global_scale);
  EXPECT_EQ(bytes_of(found.data), bytes_of(expected.data));
  EXPECT_EQ(bytes_of(found.scales), bytes_of(expected.scales));
}

TEST(Detection, Mxfp4InEverySpelling) {
  const HostMatrix m = sample(Format::kMxfp4);
  for (const char* dtype : {"I8", "U8"})
    for (const char* scale_dtype : {"F8_E8M0", "U8"}) {
      expect_same(load(tensors_of(m, {".weight", dtype, ".scale", scale_dtype})).matrix, m);
      expect_same(load(tensors_of(m, {".weight", dtype, ".weight_scale_inv", scale_dtype})).matrix,
                  m);
      expect_same(
          load(tensors_of(m, {".weight_packed", dtype, ".weight_scale", scale_dtype})).matrix, m);
    }
}

TEST(Detection, Nvfp4OfModelOptHoldsMultipliers) {
  const HostMatrix m = sample(Format::kNvfp4);
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {1}}) {
    const Loaded loaded = load(modelopt_nvfp4(m, shape));
    expect_same(loaded.matrix, m);
    EXPECT_THAT(loaded.notes, ElementsAre(HasSubstr("*.input_scale: 1 tensors not used")));
  }
}

TEST(Detection, Nvfp4OfCompressedTensorsHoldsReciprocals) {
  HostMatrix m = sample(Format::kNvfp4);
  m.global_scale = 1.0f / 1234.5f;
  const float stored = 1.0f / m.global_scale;
  const HostMatrix found = load(compressed_nvfp4(m)).matrix;
  EXPECT_EQ(found.global_scale, 1.0f / stored);
  EXPECT_NEAR(found.global_scale / m.global_scale, 1.0, 1e-7);
  m.global_scale = found.global_scale;
  expect_same(found, m);
}

TEST(Detection, Int4WithEveryGroupAndScale) {
  for (const Format format : {Format::kInt4G32, Format::kInt4G128})
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      const HostMatrix m = sample(format, dtype);
      const Loaded loaded = load(packed_int4(m));
      expect_same(loaded.matrix, m);
      EXPECT_THAT(loaded.notes, IsEmpty());
      Tensors sorted = packed_int4(m);
      std::vector<std::int32_t> groups(kCols);
      for (std::size_t c = 0; c < groups.size(); ++c)
        groups[c] = static_cast<std::int32_t>(c) /
                    static_cast<std::int32_t>(quant::traits(format).block_cols);
      sorted.push_back({std::string(kName) + ".weight_g_idx", "I32", {kCols}, bytes_of(groups)});
      expect_same(load(sorted).matrix, m);  // an index that says nothing new
    }
}

TEST(Detection, Fp8WithBothBlocksAndEveryScale) {
  struct Scale {
    DType dtype;
    const char* tag;
  };
  for (const Format format : {Format::kFp8Block128, Format::kFp8Block32})
    for (const Scale scale : {Scale{DType::kF8E8M0, "F8_E8M0"}, Scale{DType::kF8E8M0, "U8"},
                              Scale{DType::kF32, "F32"}, Scale{DType::kBF16, "BF16"}})
      for (const char* suffix : {".scale", ".weight_scale", ".weight_scale_inv"}) {
        const HostMatrix m = sample(format, scale.dtype);
        expect_same(load(tensors_of(m, {".weight", "F8_E4M3", suffix, scale.tag})).matrix, m);
      }
}

TEST(Detection, OneBlockIsOneBlock) {
  // [20, 24]: both block sizes give a scale of [1, 1], and mean the same.
  const HostMatrix m = quant::encode_matrix(Format::kFp8Block128, 20, 24, ramp(20 * 24));
  Tensors t = tensors_of(m, {".weight", "F8_E4M3", ".scale", "F8_E8M0"});
  t[1].shape = {1, 1};
  EXPECT_EQ(decoded(load(t, 20, 24).matrix), decoded(m));
}

// ---- refusals ----

struct Case {
  std::string name;
  Format format;
  std::function<void(Tensors&)> change;  // tensors: weight, scale, then what else the format has
  std::vector<std::string> parts;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

TensorSpec& named(Tensors& tensors, const std::string& suffix) {
  for (TensorSpec& t : tensors)
    if (t.name == std::string(kName) + suffix) return t;
  throw std::out_of_range(suffix);
}

void retag(TensorSpec& t, std::string dtype, std::vector<std::int64_t> shape) {
  std::int64_t elements = 1;
  for (const std::int64_t dim : shape) elements *= dim;
  const std::int64_t bytes = dtype == "F32" || dtype == "I32" ? 4 : dtype == "BF16" ? 2 : 1;
  t.dtype = std::move(dtype);
  t.shape = std::move(shape);
  t.bytes.resize(static_cast<std::size_t>(elements * bytes), '\x38');
}

std::vector<Case> cases() {
  const auto scalar = [](float value) { return bytes_of(std::vector<float>{value}); };
  const std::string name = kName;
  return {
      // wrong group sizes
      {"nvfp4_groups_of_32",
       Format::kNvfp4,
       [](Tensors& t) {
         retag(named(t, ".weight_scale"), "F8_E4M3", {48, 8});
       },
       {".weight_scale'", "expected F8_E4M3 [48, 16]", "found F8_E4M3 [48, 8] (groups of 32)"}},
      {"int4_groups_of_64",
       Format::kInt4G128,
       [](Tensors& t) {
         retag(named(t, ".weight_scale"), "BF16", {48, 4});
       },
       {".weight_scale'", "[48, 2] as the scale of INT4 in groups of 128, or [48, 8] of 32",
        "found BF16 [48, 4] (groups of 64)"}},
      {"fp8_blocks_of_64",
       Format::kFp8Block128,
       [](Tensors& t) {
         retag(named(t, ".scale"), "F32", {1, 4});
       },
       {".scale'", "[1, 2] as the scale of FP8 128x128, or [2, 8] of 32x32", "found F32 [1, 4]"}},
      {"fp8_scale_per_row",
       Format::kFp8Block128,
       [](Tensors& t) {
         retag(named(t, ".scale"), "F32", {48, 1});
       },
       {".scale'", "found F32 [48, 1]"}},
      {"fp8_scale_per_tensor",
       Format::kFp8Block128,
       [](Tensors& t) { retag(named(t, ".scale"), "F32", {1}); },
       {".scale'", "found F32 [1]"}},
      // transposed scales
      {"mxfp4_scale_transposed",
       Format::kMxfp4,
       [](Tensors& t) {
         retag(named(t, ".scale"), "F8_E8M0", {8, 48});
       },
       {".scale'", "expected F8_E8M0 (or U8) [48, 8]", "found F8_E8M0 [8, 48] (transposed)"}},
      {"nvfp4_scale_transposed",
       Format::kNvfp4,
       [](Tensors& t) {
         retag(named(t, ".weight_scale"), "F8_E4M3", {16, 48});
       },
       {".weight_scale'", "found F8_E4M3 [16, 48] (transposed)"}},
      {"int4_scale_transposed",
       Format::kInt4G128,
       [](Tensors& t) {
         retag(named(t, ".weight_scale"), "BF16", {2, 48});
       },
       {".weight_scale'", "found BF16 [2, 48] (transposed)"}},
      {"fp8_scale_transposed",
       Format::kFp8Block128,
       [](Tensors& t) {
         retag(named(t, ".scale"), "F32", {2, 1});
       },
       {".scale'", "found F32 [2, 1] (transposed)"}},
      // shapes off by one
      {"mxfp4_row_too_few",
       Format::kMxfp4,
       [](Tensors& t) {
         retag(named(t, ".weight"), "I8", {47, 128});
       },
       {".weight'", "I8 (U8) [48, 128]", "found I8 [47, 128]"}},
      {"nvfp4_scale_column_too_many",
       Format::kNvfp4,
       [](Tensors& t) {
         retag(named(t, ".weight_scale"), "F8_E4M3", {48, 17});
       },
       {".weight_scale'", "expected F8_E4M3 [48, 16]", "found F8_E4M3 [48, 17]"}},
      {"int4_word_too_few",
       Format::kInt4G128,
       [](Tensors& t) {
         retag(named(t, ".weight_packed"), "I32", {48, 31});
       },
       {".weight_packed'", "INT4 as I32 [48, 32]", "found I32 [48, 31]"}},
      {"fp8_row_too_many",
       Format::kFp8Block128,
       [](Tensors& t) {
         retag(named(t, ".weight"), "F8_E4M3", {49, 256});
       },
       {".weight'", "[48, 256]", "found F8_E4M3 [49, 256]"}},
      {"fp8_weight_transposed",
       Format::kFp8Block128,
       [](Tensors& t) {
         retag(named(t, ".weight"), "F8_E4M3", {256, 48});
       },
       {".weight'", "found F8_E4M3 [256, 48] (transposed)"}},
      // one rank's part of a matrix
      {"rows_of_a_rank",
       Format::kMxfp4,
       [](Tensors& t) {
         retag(named(t, ".weight"), "I8", {6, 128});
       },
       {".weight'", "found I8 [6, 128] (1/8 of the rows: already split for tensor parallelism?)"}},
      {"columns_of_a_rank",
       Format::kNvfp4,
       [](Tensors& t) {
         retag(named(t, ".weight"), "U8", {48, 64});
       },
       {".weight'", "found U8 [48, 64] (1/2 of the columns"}},
      // unsupported variants
      {"asymmetric_int4",
       Format::kInt4G128,
       [name](Tensors& t) {
         t.push_back({name + ".weight_zero_point", "I32", {6, 2}, std::string(48, '\0')});
       },
       {".weight_zero_point'", "expected symmetric INT4", "asymmetric INT4 is not supported"}},
      {"act_order",
       Format::kInt4G128,
       [name](Tensors& t) {
         std::vector<std::int32_t> groups(kCols, 0);
         for (std::size_t c = 128; c < groups.size(); ++c) groups[c] = 1;
         std::swap(groups[5], groups[200]);
         t.push_back({name + ".weight_g_idx", "I32", {kCols}, bytes_of(groups)});
       },
       {".weight_g_idx'", "group 0 for column 5", "found 1: act-order is not supported"}},
      {"dense_uint8",
       Format::kMxfp4,
       [](Tensors& t) {
         retag(named(t, ".weight"), "U8", {48, 256});
       },
       {".weight'", "expected two codes a byte, [48, 128]",
        "found U8 [48, 256]: dense 8-bit integers are not supported"}},
      {"int4_shape_says_otherwise",
       Format::kInt4G128,
       [](Tensors& t) { named(t, ".weight_shape").bytes = shape_bytes(48, 255); },
       {".weight_shape'", "expected [48, 256]", "found [48, 255]"}},
      {"int4_scales_of_integers",
       Format::kInt4G128,
       [](Tensors& t) {
         retag(named(t, ".weight_scale"), "I32", {48, 2});
       },
       {".weight_scale'", "expected BF16, F16 or F32", "found I32 [48, 2]"}},
      {"nvfp4_global_scale_a_vector",
       Format::kNvfp4,
       [](Tensors& t) { retag(named(t, ".weight_scale_2"), "F32", {48}); },
       {".weight_scale_2'", "expected F32 [] or [1]", "found F32 [48]"}},
      {"nvfp4_global_scale_in_bf16",
       Format::kNvfp4,
       [](Tensors& t) { retag(named(t, ".weight_scale_2"), "BF16", {1}); },
       {".weight_scale_2'", "expected F32 [] or [1]", "found BF16 [1]"}},
      {"nvfp4_both_global_scales",
       Format::kNvfp4,
       [name](Tensors& t) { t.push_back(f32(name + ".weight_global_scale", {1}, {10.0f})); },
       {"the same weight as", ".weight_global_scale'", ".weight_scale_2'"}},
      {"nvfp4_without_global_scale",
       Format::kNvfp4,
       [](Tensors& t) { t.erase(t.begin() + 2); },
       {"missing", ".weight_scale_2' []"}},
      {"nvfp4_without_scale",
       Format::kNvfp4,
       [](Tensors& t) { t.erase(t.begin() + 1); },
       {"missing", ".scale' [48, 16]"}},
      {"int4_without_scale",
       Format::kInt4G128,
       [](Tensors& t) { t.erase(t.begin() + 1); },
       {"missing", ".scale' [48, 2]"}},
      // tensors that contradict each other
      {"fp8_with_a_global_scale",
       Format::kFp8Block128,
       [name](Tensors& t) { t.push_back(f32(name + ".weight_scale_2", {}, {1.0f})); },
       {".weight_scale_2'", "expected no global scale beside an F8_E4M3 weight",
        "the tensors contradict each other"}},
      {"mxfp4_with_a_global_scale",
       Format::kMxfp4,
       [name](Tensors& t) { t.push_back(f32(name + ".weight_global_scale", {1}, {1.0f})); },
       {".weight_global_scale'", "expected no global scale beside MXFP4",
        "the tensors contradict each other"}},
      {"int4_with_a_global_scale",
       Format::kInt4G128,
       [name](Tensors& t) { t.push_back(f32(name + ".weight_global_scale", {1}, {1.0f})); },
       {".weight_global_scale'", "expected no global scale beside an INT4 weight"}},
      // values that no scale may have
      {"nvfp4_scale_nan",
       Format::kNvfp4,
       [](Tensors& t) { named(t, ".weight_scale").bytes[17] = '\x7F'; },
       {".weight_scale'", "scales from 0 to 448",
        "an E4M3 NaN (0x7f) at element 17 (row 1, column 1)"}},
      {"nvfp4_scale_negative",
       Format::kNvfp4,
       [](Tensors& t) { named(t, ".weight_scale").bytes[16] = '\xB8'; },
       {".weight_scale'", "a negative one, -1 (0xb8) at element 16 (row 1, column 0)"}},
      {"nvfp4_global_zero",
       Format::kNvfp4,
       [scalar](Tensors& t) { named(t, ".weight_scale_2").bytes = scalar(0.0f); },
       {".weight_scale_2'", "expected a positive number", "found 0"}},
      {"nvfp4_global_negative",
       Format::kNvfp4,
       [scalar](Tensors& t) { named(t, ".weight_scale_2").bytes = scalar(-1.0f); },
       {".weight_scale_2'", "found -1"}},
      {"nvfp4_global_nan",
       Format::kNvfp4,
       [scalar](Tensors& t) { named(t, ".weight_scale_2").bytes = scalar(std::nanf("")); },
       {".weight_scale_2'", "found nan"}},
      {"nvfp4_global_too_large",
       Format::kNvfp4,
       [scalar](Tensors& t) { named(t, ".weight_scale_2").bytes = scalar(1e36f); },
       {".weight_scale_2'", "at most 1.266e+35", "found 1e+36"}},
      {"int4_scale_nan",
       Format::kInt4G128,
       [](Tensors& t) { named(t, ".weight_scale").bytes.replace(6, 2, "\xC0\x7F"); },
       {".weight_scale'", "nan at element 3 (row 1, column 1)"}},
      {"unknown_input_scale",
       Format::kMxfp4,
       [name](Tensors& t) { t.push_back(f32(name + ".k_scale", {}, {1.0f})); },
       {"belong to no weight", ".k_scale'"}},
  };
}

class BadFormat : public ::testing::TestWithParam<Case> {};

TEST_P(BadFormat, IsRefusedNamingTensorExpectedAndFound) {
  const HostMatrix m = sample(GetParam().format);
  Tensors tensors;
  switch (m.format) {
    case Format::kNvfp4:
      tensors = modelopt_nvfp4(m);
      break;
    case Format::kInt4G128:
      tensors = packed_int4(m);
      break;
    case Format::kMxfp4:
      tensors = tensors_of(m, {".weight", "I8", ".scale", "F8_E8M0"});
      break;
    default:
      tensors = tensors_of(m, {".weight", "F8_E4M3", ".scale", "F8_E8M0"});
  }
  ASSERT_EQ(decoded(load(tensors).matrix), decoded(m));  // good before the change
  GetParam().change(tensors);
  try {
    load(tensors);
    FAIL() << "accepted";
  } catch (const CheckpointError& error) {
    for (const std::string& part : GetParam().parts) EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, BadFormat, ::testing::ValuesIn(cases()),
                         [](const auto& param) { return param.param.name; });

// ---- gate and up ----

Tensors pair_of(float gate_global, float up_global, bool reciprocal) {
  Tensors all;
  for (const bool up : {false, true}) {
    HostMatrix m = sample(Format::kNvfp4);
    m.global_scale = up ? up_global : gate_global;
    for (TensorSpec& t : reciprocal ? compressed_nvfp4(m) : modelopt_nvfp4(m)) {
      if (up) t.name.replace(t.name.find(".w1."), 4, ".w3.");
      all.push_back(std::move(t));
    }
  }
  return all;
}

std::vector<std::string> load_pair(const Tensors& tensors) {
  const TempFolder folder;
  folder.write("model.safetensors", safetensors_bytes(tensors));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  WeightBinder binder(checkpoint);
  const auto pair = binder.gate_and_up(kName, "layers.7.ffn.experts.3.w3", kRows, kCols);
  EXPECT_EQ(pair.first.format, Format::kNvfp4);
  binder.finish();
  return binder.notes();
}

// Gate and up have one shape, so files that hold them under each other's names cannot be told from
// good ones. What can be seen is a global scale that went astray.
TEST(GateAndUp, ModelOptSharesTheGlobalScale) {
  EXPECT_THAT(load_pair(pair_of(0.5f, 0.5f, false)), ElementsAre(HasSubstr("input_scale")));
  try {
    load_pair(pair_of(0.5f, 0.25f, false));
    FAIL() << "accepted";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("'layers.7.ffn.experts.3.w3.weight_scale_2'"),
                      HasSubstr("expected the global scale of 'layers.7.ffn.experts.3.w1', 0.5"),
                      HasSubstr("found 0.25")));
  }
}

TEST(GateAndUp, CompressedTensorsMayDiffer) {
  EXPECT_THAT(load_pair(pair_of(0.5f, 0.25f, true)),
              ElementsAre(HasSubstr("input_scale"),
                          HasSubstr("1 pairs of gate and up projections have different global")));
}

// ---- layouts that are refused by name, and the exponents that are kept ----

TEST(RefusedByName, Exl3GptqAndAwq) {
  struct Row {
    TensorSpec tensor;
    const char* name;
  };
  const std::string stem = kName;
  for (const Row& row :
       {Row{{stem + ".trellis", "I16", {2, 2}, std::string(8, '\0')}, "EXL3"},
        Row{{stem + ".suh", "F16", {4}, std::string(8, '\0')}, "EXL3"},
        Row{{stem + ".qweight", "I32", {2, 1}, std::string(8, '\0')}, "GPTQ or AWQ"},
        Row{{stem + ".qzeros", "I32", {2, 1}, std::string(8, '\0')}, "GPTQ or AWQ"}}) {
    const TempFolder folder;
    folder.write("model.safetensors", safetensors_bytes(Tensors{row.tensor}));
    const Checkpoint checkpoint = Checkpoint::open(folder.path());
    try {
      const WeightBinder binder(checkpoint);
      FAIL() << row.name;
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(row.tensor.name), HasSubstr(row.name)));
    }
    WeightBinder gentle(checkpoint, OnProblem::kCollect);
    EXPECT_THAT(gentle.problems(), ElementsAre(HasSubstr(row.name)));
  }
}

TEST(RefusedByName, Gguf) {
  const TempFolder folder;
  folder.write("DeepSeek-V4-Flash-Q4_K.gguf", "GGUF");
  try {
    Checkpoint::open(folder.path());
    FAIL() << "accepted";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'DeepSeek-V4-Flash-Q4_K.gguf'"),
                                    HasSubstr("GGUF is not supported")));
  }
}

TEST(RefusedByName, FilesOfSeveralRanks) {
  const TempFolder folder;
  folder.write("model-rank-0-part-0.safetensors",
               safetensors_bytes({f32("norm.weight", {1}, {1})}));
  folder.write("model-rank-1-part-0.safetensors",
               safetensors_bytes({f32("norm.weight", {1}, {1})}));
  try {
    Checkpoint::open(folder.path());
    FAIL() << "accepted";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'norm.weight'"), HasSubstr("also in"),
                                    HasSubstr("already split for tensor parallelism")));
  }
}

TEST(Ledger, KeepsTheExponentsOfEveryMatrix) {
  const TempFolder folder;
  HostMatrix m = sample(Format::kMxfp4);
  m.scales.as<std::uint8_t>()[3] = 140;
  folder.write("model.safetensors",
               safetensors_bytes(tensors_of(m, {".weight", "I8", ".scale", "F8_E8M0"})));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  WeightBinder binder(checkpoint);
  binder.matrix(kName, kRows, kCols);
  ASSERT_EQ(binder.scale_records().size(), 1u);
  EXPECT_EQ(binder.scale_records()[0].name, kName);
  EXPECT_EQ(binder.scale_records()[0].stats.max_exponent, 13);
  EXPECT_THAT(binder.scale_lines(),
              ElementsAre(AllOf(HasSubstr("MXFP4: scales of 1 matrices"), HasSubstr("to 2^13"))));
}

TEST(Collecting, ReportsEveryProblem) {
  const TempFolder folder;
  Tensors a = tensors_of(sample(Format::kMxfp4), {".weight", "I8", ".scale", "F8_E8M0"});
  retag(a[1], "F8_E8M0", {8, 48});
  Tensors b = tensors_of(sample(Format::kFp8Block128), {".weight", "F8_E4M3", ".scale", "F8_E8M0"});
  for (TensorSpec& t : b) t.name.replace(0, std::string(kName).size(), "wq");
  retag(b[0], "F8_E4M3", {47, 256});
  a.insert(a.end(), b.begin(), b.end());
  a.push_back(f32("stray", {1}, {1}));
  folder.write("model-00001.safetensors", safetensors_bytes(a));
  folder.write("model-00002.safetensors", safetensors_bytes({f32("stray", {1}, {1})}));
  folder.write("model-00003.safetensors", "short");
  std::vector<std::string> problems;
  const Checkpoint checkpoint = Checkpoint::open(Folder(folder.path()), &problems);
  EXPECT_THAT(problems, ElementsAre(HasSubstr("model-00003.safetensors"),
                                    AllOf(HasSubstr("'stray'"), HasSubstr("also in"))));
  WeightBinder binder(checkpoint, OnProblem::kCollect);
  EXPECT_FALSE(binder.locate_matrix(kName, kRows, kCols).found());
  EXPECT_FALSE(binder.locate_matrix("wq", kRows, kCols).found());
  for (int i = 0; i < 20; ++i) binder.locate_matrix("gone." + std::to_string(i), 4, 4);
  binder.finish();
  EXPECT_THAT(binder.problems(),
              ElementsAre(HasSubstr("(transposed)"), HasSubstr("found F8_E4M3 [47, 256]"),
                          AllOf(HasSubstr("20 expected tensors are missing"), HasSubstr(", ...")),
                          HasSubstr("1 tensors in the files belong to no weight")));
}

}  // namespace
}  // namespace nibble::checkpoint
