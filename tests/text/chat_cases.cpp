// Compares the chat encoder with cases an oracle wrote (chat_oracle_test.py):
//
//   chat_cases MODEL_DIR TOKENIZER.json CASES
//
// CASES has a JSON object a line: a request (test_chat_json.h) and "ids", what its prompt must be.
// Exit 1 when something differs; what differs is printed.
#include <fmt/format.h>

#include <fstream>
#include <string>
#include <vector>

#include "text/test_chat_json.h"

namespace {

using nibble::TokenId;
using namespace nibble::text;

constexpr int kShownDifferences = 5;

int compare(const std::string& model_dir, const std::string& tokenizer_file,
            const std::string& case_file) {
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_file);
  const EncoderLookup lookup = find_encoder(model_dir);
  fmt::print("{}\n", lookup.note);
  if (!lookup.profile) return 1;
  const ChatEncoder encoder(tokenizer, *lookup.profile);
  std::ifstream file(case_file);
  std::string line;
  int cases = 0;
  int differences = 0;
  std::size_t tokens = 0;
  while (std::getline(file, line)) {
    const auto json = parse_json(line);
    if (!json) {
      fmt::print("case {}: {}\n", cases, json.status().message);
      return 1;
    }
    std::vector<TokenId> expected;
    for (const Json& id : json->find("ids")->items) expected.push_back(std::stoi(id.text));
    const auto found = encoder.encode(request_from_json(*json));
    ++cases;
    tokens += expected.size();
    if (found && *found == expected) continue;
    if (++differences > kShownDifferences) continue;
    fmt::print("case {}: {}\n--- expected\n{}\n--- found\n{}\n", cases, line.substr(0, 400),
               tokenizer.decode(expected),
               found ? tokenizer.decode(*found) : found.status().message);
  }
  fmt::print("{} prompts, {} tokens, {} differences\n", cases, tokens, differences);
  return cases > 0 && differences == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print("usage: chat_cases MODEL_DIR TOKENIZER.json CASES\n");
    return 2;
  }
  try {
    return compare(argv[1], argv[2], argv[3]);
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
}
