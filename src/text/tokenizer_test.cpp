#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <random>

#include "nibble/status.h"
#include "text/detokenizer.h"
#include "text/test_tokenizer.h"

namespace nibble::text {
namespace {

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string refusal(const std::string& json) {
  try {
    Tokenizer::parse(json, "tokenizer.json");
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kRefusedCheckpoint);
    return error.what();
  }
  return "accepted";
}

TEST(Tokenizer, MergesAndDecodes) {
  const Tokenizer tokenizer = test_tokenizer();
  const std::vector<TokenId> ids = tokenizer.encode("in the hall\n\n");
  std::vector<std::string> tokens;
  for (const TokenId id : ids) tokens.emplace_back(tokenizer.token_bytes(id));
  EXPECT_EQ(tokens, (std::vector<std::string>{"in", " the", " ", "h", "a", "ll", "\n\n"}));
  EXPECT_EQ(tokenizer.decode(ids), "in the hall\n\n");
  EXPECT_TRUE(tokenizer.encode("").empty());
}

TEST(Tokenizer, PlainTextNeverBecomesAControlToken) {
  const Tokenizer tokenizer = test_tokenizer();
  std::string all;
  for (const std::string& token : test_control_tokens()) all += "x" + token + token;
  for (const TokenId id : tokenizer.encode(all)) EXPECT_FALSE(tokenizer.is_added(id));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(all)), all);
  EXPECT_EQ(
      marked(tokenizer, tokenizer.encode_with_control("a<think>b</think>｜DSML｜<｜User｜<think")),
      "a[[<think>]]b[[</think>]][[｜DSML｜]]<｜User｜<think");
}

TEST(Tokenizer, TheLongestOfTheLeftmostAddedTokensWins) {
  TestTokenizerParts parts;
  parts.control = {"<a", "<ab>", "<abc", "b>c", "ab"};
  const Tokenizer tokenizer = Tokenizer::parse(test_tokenizer_json(parts), "t");
  EXPECT_EQ(marked(tokenizer, tokenizer.encode_with_control("<ab><abc<abab>c<a>")),
            "[[<ab>]][[<abc]][[<a]]b[[ab]]>c[[<a]]>");
  // Not normalized ones are searched first, whatever stands further left.
  EXPECT_EQ(marked(tokenizer, tokenizer.encode_with_control("xb>cab<a>")), "x[[b>c]][[ab]][[<a]]>");
}

TEST(Tokenizer, FlagsAndIds) {
  const Tokenizer tokenizer = test_tokenizer();
  const TokenId user = *tokenizer.id_of("<｜User｜>");
  EXPECT_TRUE(tokenizer.is_added(user));
  EXPECT_FALSE(tokenizer.is_special(user));
  EXPECT_TRUE(tokenizer.is_special(0));
  EXPECT_EQ(tokenizer.id_of("the"), std::nullopt);
  EXPECT_EQ(tokenizer.id_of("<｜begin▁of▁sentence｜>"), 0);
  for (const TokenId id : {-1, tokenizer.vocab_size(), 1 << 30}) {
    EXPECT_EQ(tokenizer.token_bytes(id), "");
    EXPECT_FALSE(tokenizer.is_added(id));
    EXPECT_FALSE(tokenizer.is_special(id));
  }
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{0, user, 1 << 30, 1}, true), "<｜User｜>");
}

TEST(Tokenizer, InvalidUtf8KeepsItsBytes) {
  const Tokenizer tokenizer = test_tokenizer();
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::string bytes;
    for (int i = 0; i < 40; ++i) bytes += static_cast<char>(random() & 0xFF);
    std::string back;
    for (const TokenId id : tokenizer.encode(bytes)) back += tokenizer.token_bytes(id);
    ASSERT_EQ(back, bytes);
  }
}

// Field case 12: characters that span tokens, streamed singly, and an end inside one.
TEST(Detokenizer, NeverHalfACharacter) {
  const Tokenizer tokenizer = test_tokenizer();
  const std::string text = "👩‍👩‍👧 naïve 深度";
  const std::vector<TokenId> ids = tokenizer.encode(text);
  ASSERT_GT(ids.size(), 30u);  // one token a byte
  for (std::size_t cut = 0; cut <= ids.size(); ++cut) {
    Detokenizer detokenizer(tokenizer);
    std::string streamed;
    for (std::size_t i = 0; i < cut; ++i) {
      const std::string piece = detokenizer.push(ids[i]);
      ASSERT_EQ(first_invalid_utf8(piece), std::nullopt);
      streamed += piece;
    }
    streamed += detokenizer.finish();
    const std::vector<TokenId> head(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(cut));
    ASSERT_EQ(streamed, tokenizer.decode(head));
    const std::size_t replaced = streamed.find("\xEF\xBF\xBD");
    ASSERT_TRUE(replaced == std::string::npos || replaced + 3 == streamed.size());
  }
  Detokenizer skipping(tokenizer);
  EXPECT_EQ(skipping.push(std::vector<TokenId>{0, 3 + 'a', 1}), "a");
}

TEST(TokenizerFile, BothSpellingsOfMerges) {
  std::string json = test_tokenizer_json();
  json = replaced(json, R"(["Ġ", "t"])", R"("Ġ t")");
  EXPECT_EQ(Tokenizer::parse(json, "t").encode(" the"), test_tokenizer().encode(" the"));
}

TEST(TokenizerFile, RefusalsNameThePlace) {
  const std::string good = test_tokenizer_json();
  EXPECT_EQ(refusal(good), "accepted");
  const struct {
    const char* from;
    const char* to;
    const char* message;  // part of it
  } kCases[] = {
      {R"("type": "BPE")", R"("type": "Unigram")", "model.type: expected BPE, found \"Unigram\""},
      {R"("model")", R"("modell")", "tokenizer.json: model: missing"},
      {R"("vocab")", R"("vocap")", "model.vocab: missing"},
      {R"("merges")", R"("merge")", "model.merges: missing"},
      {R"("byte_fallback": false)", R"("byte_fallback": true)",
       "model.byte_fallback: expected false"},
      {R"("dropout": null)", R"("dropout": 0.1)", "model.dropout: expected none, found 0.1"},
      {R"("dropout": null)", R"("ignore_merges": true)", "model.ignore_merges: expected false"},
      {R"("normalizers": [])", R"("normalizers": [{"type": "NFC"}])", "normalizer: expected none"},
      {R"({"type": "Sequence", "normalizers": []})", R"({"type": "Lowercase"})",
       "normalizer: expected none"},
      {R"({1,3})", R"({1,2})",
       R"(pre_tokenizer.pretokenizers[0].pattern.Regex: expected \p{N}{1,3})"},
      {R"("behavior": "Isolated")", R"("behavior": "Removed")",
       "pretokenizers[0].behavior: expected Isolated"},
      {R"("invert": false)", R"("invert": true)", "pretokenizers[0].invert: expected false"},
      {R"("add_prefix_space": false)", R"("add_prefix_space": true)",
       "pretokenizers[3].add_prefix_space"},
      {R"("use_regex": false)", R"("use_regex": true)",
       "pretokenizers[3].use_regex: expected false"},
      {R"(, "use_regex": false)", "", "pretokenizers[3].use_regex: expected false, missing"},
      {R"("decoder": {"type": "ByteLevel"})", R"("decoder": null)",
       "decoder: expected ByteLevel, found null"},
      {R"("a": 100)", R"("a": -1)",
       R"(model.vocab["a"]: expected an id from 0 to 4194303, found -1)"},
      {R"("a": 100)", R"("a": 5000000)", R"(model.vocab["a"]: expected an id)"},
      {R"("a": 100)", R"("a": 101)", "is taken"},
      {R"("a": 100)", R"("aa": 100)", "model.vocab: no token for the single byte 0x61"},
      {R"("a": 100)", R"("b": 100)", "listed twice"},
      {R"(["h", "e"])", R"(["h", "q"])", R"(model.merges[1]: "hq" is not in model.vocab)"},
      {R"(["h", "e"])", R"(["h"])", "model.merges[1]: expected two tokens"},
      {R"(["h", "e"])", R"("h  e")", "model.merges[1]: expected two tokens"},
      {R"(["h", "e"])", "17", "model.merges[1]: expected two tokens, found 17"},
      {R"("content": "<think>")", R"("content": "he")",
       "added_tokens[5].id: expected 260 as in model.vocab"},
      {R"("content": "<think>")", R"("content": "")", "added_tokens[5].content: empty"},
      {R"("content": "<think>")", R"("content": "</think>")",
       "added_tokens[6].content: listed twice"},
      {R"("lstrip": false)", R"("lstrip": true)", "added_tokens[0].lstrip: expected false"},
      {R"("special": true)", R"("special": 1)", "added_tokens[0].special: expected true or false"},
      {R"("id": 1, )", R"("id": 0, )", "added_tokens[1].id: id 0 is taken"},
      {R"("version")", R"("version)", "not valid JSON"},
  };
  for (const auto& c : kCases) {
    const std::string message = refusal(replaced(good, c.from, c.to));
    EXPECT_NE(message.find(c.message), std::string::npos)
        << c.from << " -> " << c.to << "\n  " << message;
    EXPECT_EQ(message.rfind("tokenizer.json: ", 0), 0u) << message;
  }
}

TEST(TokenizerFile, AMergeMustNotGiveAControlToken) {
  std::string json = test_tokenizer_json();
  json = replaced(json, R"("id": 1, "content": "<｜end▁of▁sentence｜>")",
                  R"("id": 260, "content": "he")");
  EXPECT_NE(refusal(json).find("model.merges[1]: gives the added token he"), std::string::npos)
      << refusal(json);
}

TEST(TokenizerFile, DamagedFilesAreRefusedQuickly) {
  EXPECT_NE(refusal("").find("not valid JSON"), std::string::npos);
  EXPECT_NE(refusal("[]").find("expected an object"), std::string::npos);
  EXPECT_NE(refusal("null").find("expected an object"), std::string::npos);
  EXPECT_NE(refusal(std::string(100'000, '[')).find("not valid JSON"), std::string::npos);
  const std::string good = test_tokenizer_json();
  for (std::size_t cut = 0; cut < good.size(); cut += 97)
    EXPECT_NE(refusal(good.substr(0, cut)), "accepted");
  EXPECT_THROW(Tokenizer::load("/nonexistent/tokenizer.json"), CheckpointError);
}

TEST(Tokenizer, LoadsTheBundledModelsFile) {
  const Tokenizer tokenizer =
      Tokenizer::load(std::string(NIBBLE_SOURCE_DIR) + "/models/tiny/tokenizer.json");
  EXPECT_EQ(tokenizer.vocab_size(), 2560);
  EXPECT_EQ(tokenizer.id_of("<｜begin▁of▁sentence｜>"), 0);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("12 + 7 = 19")), "12 + 7 = 19");
  EXPECT_EQ(tokenizer.encode("1234").size(), 4u);  // a token a digit
}

}  // namespace
}  // namespace nibble::text
