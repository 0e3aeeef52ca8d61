// Whole conversions of the bundled model and of its rewritings: what the published layouts look like,
// what stays, which round trips are identities, and what damaged sources come to.
#include "convert/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <span>

#include "checkpoint/checkpoint.h"
#include "checkpoint/testing/mini_checkpoint.h"
#include "checkpoint/weight_binder.h"
#include "convert/json_text.h"
#include "convert/safetensors_writer.h"
#include "convert/source_walk.h"
#include "model/config.h"
#include "nibble/status.h"

namespace nibble::convert {
namespace {

namespace fs = std::filesystem;
using checkpoint::Checkpoint;
using checkpoint::CheckpointTensor;
using checkpoint::testing::TempFolder;
using tensor::DType;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kTiny = std::string(NIBBLE_SOURCE_DIR) + "/models/tiny";

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Content {
  DType dtype;
  std::string shape;
  std::string bytes;
  std::string shard;
  friend bool operator==(const Content&, const Content&) = default;
};
using Contents = std::map<std::string, Content>;

Contents contents_of(const std::string& folder) {
  const Checkpoint checkpoint = Checkpoint::open(folder);
  EXPECT_THAT(checkpoint.notes(), IsEmpty());
  Contents all;
  for (const CheckpointTensor& t : checkpoint.tensors()) {
    std::string bytes(static_cast<std::size_t>(t.bytes), '\0');
    checkpoint.read(t, 0, std::as_writable_bytes(std::span(bytes)));
    const std::string& shard = checkpoint.shards()[static_cast<std::size_t>(t.shard)].path();
    all[t.name] = {t.dtype, t.shape.to_string(), std::move(bytes), fs::path(shard).filename()};
  }
  return all;
}

ConvertReport converted(const std::string& source, const std::string& destination, Target target,
                        int threads = 2) {
  ConvertOptions options;
  options.source = source;
  options.destination = destination;
  options.target = target;
  options.threads = threads;
  options.durable = false;
  ConvertReport report = convert(options);
  EXPECT_FALSE(fs::exists(destination + ".partial"));
  return report;
}

// The bundled model with its tensors changed and laid out anew.
using Edit = std::function<void(Contents&)>;
void rewrite_tiny(const std::string& folder, const Edit& edit) {
  Contents all = contents_of(kTiny);
  edit(all);
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [name, content] : all) shards[content.shard].push_back(name);
  fs::create_directories(folder);
  JsonMembers map;
  for (const auto& [shard, names] : shards) {
    std::vector<NewTensor> tensors;
    for (const std::string& name : names) {
      const std::string& dims = all[name].shape;  // "[2, 3]"
      std::vector<std::int64_t> shape;
      for (std::size_t at = 1; at + 1 < dims.size(); at = dims.find_first_of(",]", at) + 1)
        shape.push_back(std::stoll(dims.substr(at)));
      tensors.push_back(
          {name, all[name].dtype, tensor::Shape(std::span<const std::int64_t>(shape))});
      map.emplace_back(name, json_string(shard));
    }
    SafetensorsWriter writer(fs::path(folder) / shard, tensors);
    for (std::size_t i = 0; i < names.size(); ++i)
      writer.write(i, 0, std::as_bytes(std::span(all[names[i]].bytes)));
    writer.finish(false);
  }
  std::ofstream(folder + "/model.safetensors.index.json")
      << json_object({{"metadata", "{}"}, {"weight_map", json_object(map)}});
  fs::copy_file(kTiny + "/config.json", folder + "/config.json");
}

bool is_expert(const std::string& name) {
  return name.starts_with("layers.") && name.find(".experts.") != std::string::npos;
}

TEST(Convert, ExpertsChangeAndNothingElse) {
  const TempFolder root;
  const Contents before = contents_of(kTiny);
  const std::string w1 = "layers.3.ffn.experts.5.w1";
  struct Case {
    std::vector<std::string> suffixes;
    std::vector<DType> dtypes;
    std::vector<std::string> shapes;
    std::string dense_scale;
    Target target;
    DType dense_scale_dtype;
  };
  const Case cases[] = {
      {{".weight", ".scale"},
       {DType::kI8, DType::kF8E8M0},
       {"[128, 128]", "[128, 8]"},
       ".scale",
       Target::kMxfp4,
       DType::kF8E8M0},
      {{".weight", ".weight_scale", ".weight_scale_2", ".input_scale"},
       {DType::kU8, DType::kF8E4M3, DType::kF32, DType::kF32},
       {"[128, 128]", "[128, 16]", "[]", "[]"},
       ".scale",
       Target::kNvfp4,
       DType::kF8E8M0},
      {{".weight_packed", ".weight_scale", ".weight_shape"},
       {DType::kI32, DType::kBF16, DType::kI64},
       {"[128, 32]", "[128, 2]", "[2]"},
       ".weight_scale",
       Target::kInt4,
       DType::kF8E8M0},
      {{".weight", ".scale"},
       {DType::kF8E4M3, DType::kF32},
       {"[128, 256]", "[1, 2]"},
       ".scale",
       Target::kFp8,
       DType::kF32},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(target_name(c.target));
    const std::string out = root / target_name(c.target);
    const ConvertReport report = converted(kTiny, out, c.target);
    EXPECT_EQ(report.exact(), c.target != Target::kInt4) << report.verdict();
    EXPECT_EQ(report.matrices.size(), 288u);
    ASSERT_EQ(report.kinds.size(), 1u);
    EXPECT_EQ(report.kinds[0].kind, "routed experts");
    EXPECT_EQ(report.total.values, 288 * 128 * 256);
    EXPECT_EQ(report.shards, 2);
    const Contents after = contents_of(out);
    std::int64_t bytes = 0, experts = 0;
    for (const auto& [name, content] : after) {
      bytes += static_cast<std::int64_t>(content.bytes.size());
      if (is_expert(name)) {
        ++experts;
        continue;
      }
      std::string old = name;
      const bool dense_scale = !name.starts_with("mtp.") && name.ends_with(c.dense_scale) &&
                               content.dtype == c.dense_scale_dtype && name != "hc_head_scale";
      if (dense_scale) old = name.substr(0, name.size() - c.dense_scale.size()) + ".scale";
      const auto found = before.find(old);
      ASSERT_NE(found, before.end()) << name;
      EXPECT_EQ(found->second.shape, content.shape) << name;
      EXPECT_EQ(found->second.shard, content.shard) << name;
      if (dense_scale && c.dense_scale_dtype == DType::kF32) {
        for (std::size_t i = 0; i < found->second.bytes.size(); ++i) {
          float wide;
          std::memcpy(&wide, content.bytes.data() + 4 * i, 4);
          ASSERT_EQ(wide, std::ldexp(1.0, static_cast<std::uint8_t>(found->second.bytes[i]) - 127));
        }
        continue;
      }
      EXPECT_TRUE(found->second == content) << name;
    }
    EXPECT_EQ(bytes, report.bytes);
    EXPECT_EQ(experts, static_cast<std::int64_t>(288 * c.suffixes.size()));
    for (std::size_t i = 0; i < c.suffixes.size(); ++i) {
      ASSERT_TRUE(after.contains(w1 + c.suffixes[i])) << c.suffixes[i];
      const Content& found = after.at(w1 + c.suffixes[i]);
      EXPECT_EQ(found.dtype, c.dtypes[i]) << c.suffixes[i];
      EXPECT_EQ(found.shape, c.shapes[i]) << c.suffixes[i];
      EXPECT_EQ(found.shard, before.at(w1 + ".weight").shard);
    }
    const std::string index = text_of(out + "/model.safetensors.index.json");
    EXPECT_THAT(index, HasSubstr("\"total_size\": " + std::to_string(report.bytes)));
    for (const char* name : {"tokenizer.json", "generation_config.json", "README.md",
                             "encoding/encoding_dsv4.py", "tokenizer_config.json"})
      EXPECT_EQ(text_of(out + "/" + name), text_of(kTiny + "/" + name)) << name;
    EXPECT_THAT(report.left_out, ElementsAre("encoding/tests (a folder)"));
  }
}

TEST(Convert, Nvfp4MovesCodesAndSharesScales) {
  const TempFolder root;
  const ConvertReport report = converted(kTiny, root / "out", Target::kNvfp4);
  const Contents before = contents_of(kTiny), after = contents_of(root / "out");
  for (const MatrixReport& matrix : report.matrices) {
    EXPECT_EQ(before.at(matrix.name + ".weight").bytes, after.at(matrix.name + ".weight").bytes);
    EXPECT_EQ(matrix.stats.requantised_blocks, 0);
    const float one = 1.0f;
    EXPECT_EQ(after.at(matrix.name + ".input_scale").bytes,
              std::string(reinterpret_cast<const char*>(&one), 4));
    if (!matrix.name.ends_with(".w1")) continue;
    std::string up = matrix.name;
    up.back() = '3';
    EXPECT_EQ(after.at(matrix.name + ".weight_scale_2").bytes,
              after.at(up + ".weight_scale_2").bytes);
  }
}

TEST(Convert, RoundTripsAreIdentities) {
  const TempFolder root;
  const Contents tiny = contents_of(kTiny);
  converted(kTiny, root / "nvfp4", Target::kNvfp4);
  EXPECT_TRUE(converted(root / "nvfp4", root / "back", Target::kMxfp4).exact());
  // The source cuts its shards between a weight and its scale; the result keeps the two together.
  const auto without_shards = [](Contents contents) {
    for (auto& [name, content] : contents) content.shard.clear();
    return contents;
  };
  EXPECT_EQ(without_shards(contents_of(root / "back")) == without_shards(tiny), true);
  // FP8 keeps every value; codes and exponents may come back in another of the forms a value has.
  converted(kTiny, root / "fp8", Target::kFp8);
  EXPECT_TRUE(converted(root / "fp8", root / "back-2", Target::kMxfp4).exact());
  // Whatever it was, bf16 of an exact one equals bf16 of the source.
  EXPECT_TRUE(converted(kTiny, root / "bf16", Target::kBf16).exact());
  const Contents bf16 = contents_of(root / "bf16");
  for (const char* name : {"nvfp4", "fp8", "back-2"}) {
    EXPECT_TRUE(converted(root / name, root / (std::string(name) + "-bf16"), Target::kBf16).exact())
        << name;
    EXPECT_EQ(contents_of(root / (std::string(name) + "-bf16")) == bf16, true) << name;
  }
  const ConvertReport twice = converted(root / "bf16", root / "bf16-2", Target::kBf16);
  EXPECT_THAT(twice.matrices, IsEmpty());
  EXPECT_EQ(contents_of(root / "bf16-2") == bf16, true);
}

TEST(Convert, Bf16ChangesEveryMatrixAndKeepsVectors) {
  const TempFolder root;
  const ConvertReport report = converted(kTiny, root / "out", Target::kBf16);
  EXPECT_TRUE(report.exact()) << report.verdict();
  for (const auto& [name, content] : contents_of(root / "out")) {
    EXPECT_FALSE(name.ends_with(".scale")) << name;
    if (!name.ends_with(".weight")) continue;
    EXPECT_EQ(content.dtype, DType::kBF16) << name;
  }
  const std::string config = text_of(root / "out/config.json");
  EXPECT_THAT(config, AllOf(Not(HasSubstr("quantization_config")), Not(HasSubstr("expert_dtype"))));
  EXPECT_THAT(config, HasSubstr("\"rms_norm_eps\": 1e-06"));  // as it was written
  // Back to 4 bits: attention stays bf16, and the file says so.
  const ConvertReport again = converted(root / "out", root / "again", Target::kMxfp4);
  EXPECT_TRUE(again.exact());
  EXPECT_THAT(text_of(root / "again/config.json"),
              AllOf(HasSubstr("modules_to_not_convert"), HasSubstr("\"layers.0.attn.wq_a\"")));
}

TEST(Convert, ThreadsDoNotMatter) {
  const TempFolder root;
  const ConvertReport one = converted(kTiny, root / "one", Target::kInt4, 1);
  const ConvertReport many = converted(kTiny, root / "many", Target::kInt4, 5);
  for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                           "model.safetensors.index.json", "config.json"})
    EXPECT_EQ(text_of(root / "one/" + name) == text_of(root / "many/" + name), true) << name;
  EXPECT_EQ(one.total.relative_rms(), many.total.relative_rms());
  EXPECT_EQ(one.verdict(), many.verdict());
}

TEST(Convert, PairsAndScalesMayLieInDifferentShards) {
  const TempFolder root;
  converted(kTiny, root / "expected", Target::kNvfp4);
  rewrite_tiny(root / "source", [](Contents& all) {
    for (auto& [name, content] : all) {
      if (name.find(".w3.") != std::string::npos)
        content.shard = "model-00002-of-00002.safetensors";
      if (name.find(".w1.") != std::string::npos)
        content.shard = "model-00001-of-00002.safetensors";
      if (name.ends_with("w2.scale")) content.shard = "scales.safetensors";
    }
  });
  const ConvertReport report = converted(root / "source", root / "out", Target::kNvfp4);
  EXPECT_TRUE(report.exact());
  EXPECT_EQ(report.matrices.size(), 288u);
  Contents found = contents_of(root / "out"), expected = contents_of(root / "expected");
  EXPECT_EQ(found.at("layers.3.ffn.experts.5.w3.weight").shard, "model-00002-of-00002.safetensors");
  EXPECT_EQ(found.at("layers.3.ffn.experts.5.w1.weight").shard, "model-00001-of-00002.safetensors");
  for (Contents* contents : {&found, &expected})
    for (auto& [name, content] : *contents) content.shard.clear();
  EXPECT_EQ(found == expected, true);
}

TEST(Convert, OtherSpellingsComeOutAsDeepSeeks) {
  const TempFolder root;
  converted(kTiny, root / "expected", Target::kFp8);
  rewrite_tiny(root / "source", [](Contents& all) {
    Contents renamed;
    std::map<std::pair<std::string, std::string>, Content> stacked;  // (layer, w1|w2|w3 and suffix)
    for (auto& [name, content] : all) {
      std::string other = name;
      if (name.ends_with("attn.wq_a.scale") && name.starts_with("layers."))
        other = "model." + name.substr(0, name.size() - 5) + "weight_scale_inv";
      else if (name.ends_with("attn.wq_a.weight") && name.starts_with("layers."))
        other = "model." + name;
      renamed[other] = std::move(content);
    }
    all = std::move(renamed);
    // Layer 2's experts stacked, as the transformers library has them.
    for (const char* suffix : {".weight", ".scale"}) {
      const bool scale = std::string(suffix) == ".scale";
      std::string gate_up, down;
      Content like;
      for (int e = 0; e < 16; ++e) {
        const std::string p = "layers.2.ffn.experts." + std::to_string(e);
        for (const char* w : {".w1", ".w3"}) gate_up += all.at(p + w + suffix).bytes;
        down += all.at(p + ".w2" + suffix).bytes;
        like = all.at(p + ".w1" + suffix);
        for (const char* w : {".w1", ".w2", ".w3"}) all.erase(p + w + suffix);
      }
      const std::string stem = "model.layers.2.mlp.experts.";
      all[stem + "gate_up_proj" + (scale ? "_scale_inv" : "")] = {
          like.dtype, scale ? "[16, 256, 8]" : "[16, 256, 128]", gate_up, like.shard};
      all[stem + "down_proj" + (scale ? "_scale_inv" : "")] = {
          like.dtype, scale ? "[16, 256, 4]" : "[16, 256, 64]", down, like.shard};
    }
  });
  converted(root / "source", root / "out", Target::kFp8);
  Contents found = contents_of(root / "out"), expected = contents_of(root / "expected");
  for (Contents* contents : {&found, &expected})
    for (auto& [name, content] : *contents) content.shard.clear();
  for (const auto& [name, content] : found)
    EXPECT_TRUE(expected.contains(name) && expected.at(name) == content) << name;
  EXPECT_EQ(found.size(), expected.size());
}

// A drafter that the model does not run: kept bit by bit, or dequantised with the rest.
TEST(Convert, DSparkDrafter) {
  const TempFolder root;
  rewrite_tiny(root / "source", [](Contents& all) {
    std::erase_if(all, [](const auto& entry) { return entry.first.starts_with("mtp.0.e_proj"); });
    Contents more;
    for (const char* suffix : {".weight", ".scale"})
      all[std::string("mtp.0.main_proj") + suffix] = all.at(std::string("mtp.0.h_proj") + suffix);
  });
  const Contents before = contents_of(root / "source");
  converted(root / "source", root / "nvfp4", Target::kNvfp4);
  for (const auto& [name, content] : contents_of(root / "nvfp4")) {
    if (!name.starts_with("mtp.")) continue;
    EXPECT_TRUE(before.at(name) == content) << name;
  }
  const ConvertReport report = converted(root / "source", root / "bf16", Target::kBf16);
  EXPECT_TRUE(report.exact());
  const auto kind = std::ranges::find(report.kinds, kUnusedDraftKind, &KindReport::kind);
  ASSERT_NE(kind, report.kinds.end());
  for (const auto& [name, content] : contents_of(root / "bf16")) {
    if (!name.ends_with(".weight")) continue;
    EXPECT_EQ(content.dtype, DType::kBF16) << name;
  }
}

struct Damage {
  std::string name;
  Edit edit;
  std::string message;
};

TEST(Convert, DamagedSourcesLeaveNothing) {
  const std::string expert = "layers.4.ffn.experts.7.w2", dense = "layers.1.attn.wo_b";
  const auto set_byte = [](const std::string& name, std::size_t at, int value) {
    return [=](Contents& all) { all.at(name).bytes[at] = static_cast<char>(value); };
  };
  const std::vector<Damage> damages = {
      {"expert-scale", set_byte(expert + ".scale", 9, 0xFF), expert},
      {"dense-code", set_byte(dense + ".weight", 77, 0x7F), dense},
      {"dense-scale", set_byte(dense + ".scale", 0, 0xFF), dense},
      {"draft-scale", set_byte("mtp.0.ffn.experts.3.w1.scale", 0, 0xFF), "mtp.0.ffn.experts.3.w1"},
      {"norm",
       [](Contents& all) {
         for (int i = 0; i < 2; ++i)
           all.at("norm.weight").bytes[10 + static_cast<std::size_t>(i)] = '\x7f';
         all.at("norm.weight").bytes[10] = '\xc0';
       },
       "norm.weight"},
      {"table", set_byte("layers.0.ffn.gate.tid2eid", 16, 16), "tid2eid"},
      {"missing", [=](Contents& all) { all.erase(expert + ".scale"); }, expert + ".scale"},
      {"stray", [](Contents& all) { all["layers.0.stray"] = all.at("norm.weight"); },
       "layers.0.stray"},
      {"shape", [=](Contents& all) { all.at(expert + ".scale").shape = "[4, 256]"; }, expert},
  };
  for (std::size_t i = 0; i < damages.size(); ++i) {
    const Damage& damage = damages[i];
    const Target target = i % 2 == 0 ? Target::kNvfp4 : Target::kBf16;
    SCOPED_TRACE(damage.name + std::string(" ") + std::string(target_name(target)));
    const TempFolder root;
    rewrite_tiny(root / "source", damage.edit);
    try {
      converted(root / "source", root / "out", target);
      ADD_FAILURE() << "converted";
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr(damage.message));
    }
    EXPECT_FALSE(fs::exists(root / "out"));
    EXPECT_FALSE(fs::exists(root / "out.partial"));
  }
}

TEST(Convert, ColumnsThatDoNotDivideAreRefusedBeforeWriting) {
  const TempFolder root;
  rewrite_tiny(root / "source", [](Contents&) {});
  // 192 columns in w2 fit groups of 32 and not of 128.
  std::string config = text_of(root / "source/config.json");
  config.replace(config.find("\"moe_intermediate_size\": 128"), 28,
                 "\"moe_intermediate_size\": 192");
  const Contents tiny = contents_of(kTiny);
  fs::remove_all(root / "source");
  rewrite_tiny(root / "source", [](Contents& all) {
    for (auto& [name, content] : all) {
      if (name.find("experts.") == std::string::npos) continue;
      const bool w2 = name.find(".w2.") != std::string::npos,
                 fp8 = name.find("shared") != std::string::npos;
      const bool scale = name.ends_with(".scale");
      if (fp8)
        content.shape = w2 ? (scale ? "[2, 2]" : "[256, 192]") : (scale ? "[2, 2]" : "[192, 256]");
      else
        content.shape =
            w2 ? (scale ? "[256, 6]" : "[256, 96]") : (scale ? "[192, 8]" : "[192, 128]");
      const std::size_t size = fp8 ? (scale ? 4 : 49152) : (scale ? 1536 : 24576);
      content.bytes = std::string(size, scale ? '\x78' : '\x11');
    }
  });
  std::ofstream(root / "source/config.json") << config;
  try {
    converted(root / "source", root / "out", Target::kInt4);
    ADD_FAILURE();
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("w2"), HasSubstr("groups of 128"), HasSubstr("192")));
  }
  EXPECT_FALSE(fs::exists(root / "out.partial"));
  // FP8 blocks may be partial.
  EXPECT_TRUE(converted(root / "source", root / "fp8", Target::kFp8).exact());
}

TEST(Convert, CancellingLeavesNothing) {
  const TempFolder root;
  ConvertOptions options;
  options.source = kTiny;
  options.destination = root / "out";
  options.cancelled = [] { return true; };
  try {
    convert(options);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("interrupted"));
  }
  EXPECT_FALSE(fs::exists(root / "out"));
  EXPECT_FALSE(fs::exists(root / "out.partial"));
}

}  // namespace
}  // namespace nibble::convert
