// How the pre-tokenizers that GGUF files name cut texts, against the Rust library of tokenizers
// (tools/make_gguf_pre_goldens.py).

#include <gtest/gtest.h>

#include "base/json.h"
#include "format/gguf_bytes.h"
#include "model/gguf_model.h"
#include "support/data.h"
#include "text/pre_tokenizer.h"

namespace bl::test {
namespace {

// The pre-tokenizer of the tokenizer.json that a file with this tokenizer.ggml.pre gives.
Json pre_tokenizer_of(const std::string& pre) {
  GgufBytes file;
  file.add("general.architecture", "llama").add("llama.block_count", 1u);
  file.add("llama.context_length", 64u).add("llama.embedding_length", 8u);
  file.add("llama.attention.head_count", 2u);
  file.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  file.ramp("token_embd.weight", {8, 2}, 1);
  file.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", pre.c_str());
  file.add_texts("tokenizer.ggml.tokens", {"a", "b"});
  const std::string bytes = file.bytes();
  const GgufModel model =
      describe_gguf(GgufFile::parse(as_span(bytes), "test.gguf"), ArchLibrary());
  return Json::parse(model.tokenizer_json)["pre_tokenizer"];
}

std::vector<std::string> pieces_of(const PreTokenizer& tokenizer, const std::string& text) {
  PreTokens tokens{.text = text, .pieces = {}};
  if (!text.empty()) tokens.pieces.push_back({0, text.size(), true});
  tokenizer.apply(tokens);
  std::vector<std::string> pieces;
  for (const PreTokens::Piece& piece : tokens.pieces) pieces.emplace_back(tokens.view(piece));
  return pieces;
}

TEST(GgufPreTokenizers, CutAsTheRustLibraryDoes) {
  const Json golden = read_json_file(data_dir() / "gguf_pre.json");
  for (const auto& [name, rows] : golden["pieces"].items()) {
    const Json json = pre_tokenizer_of(name);
    const auto tokenizer = make_pre_tokenizer(ComponentReader(json, name));
    ASSERT_EQ(rows.size(), golden["texts"].size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::string text = golden["texts"][i];
      EXPECT_EQ(pieces_of(*tokenizer, text), rows[i].get<std::vector<std::string>>())
          << name << ": " << text;
    }
  }
}

// The time is linear in the number of digits.
TEST(GgufPreTokenizers, LongRunsOfDigitsTakeNoTime) {
  const Json json = pre_tokenizer_of("afmoe");
  const auto tokenizer = make_pre_tokenizer(ComponentReader(json, "afmoe"));
  const std::vector<std::string> pieces = pieces_of(*tokenizer, std::string(100'001, '7'));
  ASSERT_EQ(pieces.size(), 33'334u);
  EXPECT_EQ(pieces.front(), "77");
  EXPECT_EQ(pieces.back(), "777");
}

}  // namespace
}  // namespace bl::test
