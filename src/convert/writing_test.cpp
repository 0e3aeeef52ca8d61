// What is written, and how it gets its name: JSON text, safetensors files, the folder, the jobs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "checkpoint/checkpoint.h"
#include "checkpoint/testing/mini_checkpoint.h"
#include "convert/job_runner.h"
#include "convert/json_text.h"
#include "convert/output_folder.h"
#include "convert/safetensors_writer.h"
#include "nibble/status.h"

namespace nibble::convert {
namespace {

namespace fs = std::filesystem;
using checkpoint::testing::TempFolder;
using tensor::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

template <typename Body>
std::string message_of(Body body, ExitCode code) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.exit_code()), static_cast<int>(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(JsonText, MembersKeepOrderAndText) {
  const JsonMembers members =
      parse_members(R"( {"b": 1e-06 , "a":{"x" : [1,2]}, "s\u0041\"": "q\"\\", "n":null } )", "f");
  EXPECT_THAT(members, ElementsAre(Pair("b", "1e-06"), Pair("a", R"({"x" : [1,2]})"),
                                   Pair("sA\"", R"("q\"\\")"), Pair("n", "null")));
  const std::string again = json_object(members);
  EXPECT_EQ(parse_members(again, "f"), members) << again;
}

TEST(JsonText, RefusesWhatIsNoObject) {
  for (const char* text : {"", "[]", "7", "{", R"({"a" 1})", R"({"a": })", R"({"a": tru})"})
    EXPECT_THAT(message_of([&] { json_object(parse_members(text, "dir/config.json")); },
                           ExitCode::kRefusedCheckpoint),
                HasSubstr("dir/config.json: "))
        << text;
}

std::vector<NewTensor> odd_tensors() {
  return {{"bytes", DType::kU8, {3}},       {"a \"quoted\" \\ name\n", DType::kF32, {}},
          {"wide", DType::kI64, {2}},       {"nothing", DType::kBF16, {0, 4}},
          {"halves", DType::kBF16, {2, 3}}, {"scales", DType::kF8E8M0, {5, 1}}};
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const TempFolder folder;
  std::vector<NewTensor> tensors;
  for (const std::size_t i : aligned_order(odd_tensors())) tensors.push_back(odd_tensors()[i]);
  SafetensorsWriter writer(folder / "model.safetensors", tensors);
  std::vector<std::string> contents;
  for (std::size_t i = tensors.size(); i-- > 0;) {
    std::string bytes(static_cast<std::size_t>(tensors[i].bytes()), static_cast<char>('a' + i));
    const auto half = static_cast<std::int64_t>(bytes.size() / 2);
    const auto all = std::as_bytes(std::span(bytes));
    writer.write(i, half, all.subspan(static_cast<std::size_t>(half)));
    writer.write(i, 0, all.first(static_cast<std::size_t>(half)));
    contents.insert(contents.begin(), bytes);
  }
  // Not a safetensors file before it is finished.
  EXPECT_THAT(message_of([&] { checkpoint::Checkpoint::open(folder.path()); },
                         ExitCode::kRefusedCheckpoint),
              HasSubstr("model.safetensors"));
  writer.finish(true);
  EXPECT_EQ(static_cast<std::int64_t>(fs::file_size(writer.path())), safetensors_bytes(tensors));

  const auto checkpoint = checkpoint::Checkpoint::open(folder.path());
  EXPECT_TRUE(checkpoint.notes().empty());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto* found = checkpoint.find(tensors[i].name);
    ASSERT_NE(found, nullptr) << tensors[i].name;
    EXPECT_EQ(found->dtype, tensors[i].dtype);
    EXPECT_EQ(found->shape, tensors[i].shape);
    EXPECT_EQ(found->offset % tensor::dtype_bytes(found->dtype), 0) << tensors[i].name;
    std::string bytes(static_cast<std::size_t>(found->bytes), '\0');
    checkpoint.read(*found, 0, std::as_writable_bytes(std::span(bytes)));
    EXPECT_EQ(bytes, contents[i]);
  }
  EXPECT_EQ(safetensors_header(tensors).size() % 8, 0u);
  EXPECT_THAT(message_of([&] { SafetensorsWriter(writer.path(), tensors); }, ExitCode::kFailed),
              HasSubstr("File exists"));
}

TEST(OutputFolder, RefusesPlacesThatCannotBe) {
  const TempFolder root;
  fs::create_directories(root / "src/inner");
  fs::create_directories(root / "full");
  fs::create_directory_symlink(root / "src", root / "link");
  root.write("full/file", "x");
  root.write("a-file", "x");
  const auto refused = [&](const std::string& path) {
    return message_of([&] { OutputFolder(path, root / "src"); }, ExitCode::kUsage);
  };
  for (const char* path : {"src", "src/", "src/out", "src/inner", "src/../src/out", "link/out", ""})
    EXPECT_THAT(refused(std::string(path).empty() ? root.path() : root / path),
                HasSubstr("apart from the source"))
        << path;
  EXPECT_THAT(refused(root / "full"), HasSubstr("an empty folder or none"));
  EXPECT_THAT(refused(root / "a-file"), HasSubstr("no such file yet"));
  EXPECT_THAT(refused(root / "no/where"), HasSubstr("found none at"));
  EXPECT_THAT(refused(""), HasSubstr("empty"));
  OutputFolder beside(root / "src-2", root / "src");  // a common beginning is no containment
  EXPECT_EQ(fs::path(beside.path()).filename(), "src-2");
}

TEST(OutputFolder, AppearsWhenCommittedOnly) {
  const TempFolder root;
  fs::create_directories(root / "src");
  fs::create_directories(root / "out");
  {
    OutputFolder output(root / "out/", root / "src");
    output.create();
    std::ofstream(output.partial() + "/file") << "x";
    EXPECT_THAT(
        message_of([&] { OutputFolder(root / "out", root / "src").create(); }, ExitCode::kFailed),
        HasSubstr("out.partial"));
    EXPECT_TRUE(fs::exists(output.partial()));  // the second one did not remove the first one's
  }
  EXPECT_FALSE(fs::exists(root / "out.partial"));
  EXPECT_TRUE(fs::is_empty(root / "out"));
  {
    OutputFolder output(root / "out", root / "src");
    output.create();
    std::ofstream(output.partial() + "/file") << "x";
    output.commit();
  }
  EXPECT_TRUE(fs::exists(root / "out/file"));
  EXPECT_FALSE(fs::exists(root / "out.partial"));
  {
    OutputFolder output(root / "late", root / "src");
    output.create();
    root.write("late/file", "came meanwhile");
    message_of([&] { output.commit(); }, ExitCode::kFailed);
  }
  EXPECT_FALSE(fs::exists(root / "late.partial"));
  EXPECT_TRUE(fs::exists(root / "late/file"));
}

TEST(OutputFolder, KnowsWhenTheDiskIsTooSmall) {
  const TempFolder root;
  fs::create_directories(root / "src");
  const OutputFolder output(root / "out", root / "src");
  output.require_space(1);
  EXPECT_THAT(message_of([&] { output.require_space(std::int64_t{1} << 60); }, ExitCode::kFailed),
              HasSubstr("are missing"));
}

TEST(JobRunner, RunsEachJobOnce) {
  for (const int threads : {1, 4}) {
    std::vector<std::atomic<int>> runs(100);
    run_jobs(
        runs.size(), threads, [&](std::size_t i) { ++runs[i]; }, [] {});
    for (const auto& count : runs) EXPECT_EQ(count, 1);
  }
  run_jobs(
      0, 3, [](std::size_t) { FAIL(); }, [] {});
}

TEST(JobRunner, FailuresStopTheRest) {
  for (const int threads : {1, 4}) {
    std::atomic<int> runs{0};
    const auto job = [&](std::size_t i) {
      ++runs;
      if (i >= 10) throw Error(ExitCode::kFailed, "job " + std::to_string(i));
    };
    EXPECT_EQ(message_of([&] { run_jobs(1000, threads, job, [] {}); }, ExitCode::kFailed),
              "job 10");
    EXPECT_LE(runs, 10 + threads);
  }
}

TEST(JobRunner, PollingMayStopIt) {
  std::atomic<int> runs{0};
  std::atomic<bool> go{false};
  const auto job = [&](std::size_t) {
    ++runs;
    while (!go) std::this_thread::yield();
  };
  const auto poll = [&] {
    go = true;
    throw Error(ExitCode::kFailed, "enough");
  };
  EXPECT_EQ(message_of([&] { run_jobs(1'000'000'000, 2, job, poll); }, ExitCode::kFailed),
            "enough");
  EXPECT_LT(runs, 1'000'000'000);
}

}  // namespace
}  // namespace nibble::convert
