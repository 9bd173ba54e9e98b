// Small tokenizers of our own against what the packages `tokenizers` and `sentencepiece` made of
// them (tools/make_tokenizer_goldens.py).

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "support/data.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"

namespace bl {
namespace {

using Ids = std::vector<std::int32_t>;

std::filesystem::path goldens() { return test::unpacked("tokenizers"); }

void for_each_record(const char* file, const std::function<void(const Json&)>& visit) {
  std::ifstream in(goldens() / file);
  ASSERT_TRUE(in) << file;
  int count = 0;
  for (std::string line; std::getline(in, line); ++count) visit(parse_json(line, file));
  EXPECT_GT(count, 0) << file;
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  TextStream stream(tokenizer, skip_special);
  std::string text;
  for (const auto id : ids) text += stream.push(id);
  return text + stream.finish();
}

// Same as patched() of the script: a patch sets whole fields, "model.x" reaches into the model.
Json patched(Json document, const Json& patch) {
  for (const auto& [key, value] : patch.items()) {
    if (key.rfind("model.", 0) == 0) {
      document["model"][key.substr(6)] = value;
    } else {
      document[key] = value;
    }
  }
  return document;
}

void check_decodes(const Tokenizer& tokenizer, const Json& record, const std::string& label) {
  for (const Json& row : record["decodes"]) {
    const Ids ids = row[0].get<Ids>();
    for (std::size_t skip = 0; skip + 1 < row.size(); ++skip) {
      const std::string text = tokenizer.decode(ids, skip == 1);
      EXPECT_EQ(text, row[skip + 1].get<std::string>()) << label << row[0];
      EXPECT_EQ(streamed(tokenizer, ids, skip == 1), text) << label << row[0];
    }
  }
}

TEST(TokenizerGolden, TokenizerJson) {
  int cases = 0;
  for_each_record("encode.jsonl", [&](const Json& record) {
    const auto path = goldens() / "bases" / (record["base"].get<std::string>() + ".json");
    const Json document = patched(read_json_file(path), record["patch"]);
    const auto tokenizer = Tokenizer::from_json(document.dump(), "", path.string());
    const std::string label = record["base"].get<std::string>() + record["patch"].dump() + ": ";
    for (const Json& row : record["cases"]) {
      const std::string text = row[0].get<std::string>();
      EXPECT_EQ(tokenizer->encode(text, {.add_special = true}), row[1].get<Ids>())
          << label << row[0];
      EXPECT_EQ(tokenizer->encode(text, {.add_special = false}), row[2].get<Ids>())
          << label << row[0];
      ++cases;
    }
    check_decodes(*tokenizer, record, label);
  });
  EXPECT_GT(cases, 5000);
}

TEST(TokenizerGolden, SentencePiece) {
  int cases = 0;
  for_each_record("sentencepiece.jsonl", [&](const Json& record) {
    const std::string name = record["model"].get<std::string>();
    const std::string model = read_file(goldens() / "models" / (name + ".model"));
    const auto tokenizer = Tokenizer::from_sentencepiece(model, "", name);
    for (const Json& row : record["cases"]) {
      EXPECT_EQ(tokenizer->encode(row[0].get<std::string>(), {.add_special = false}),
                row[1].get<Ids>())
          << name << ": " << row[0];
      ++cases;
    }
    check_decodes(*tokenizer, record, name + ": ");
  });
  EXPECT_GT(cases, 500);
}

TEST(TokenizerGolden, Normalizers) {
  for_each_record("normalizers.jsonl", [](const Json& record) {
    const auto normalizer = make_normalizer({record["normalizer"], "normalizer"});
    for (const Json& row : record["cases"]) {
      NormalizedText text{row[0].get<std::string>(), true};
      normalizer->apply(text);
      EXPECT_EQ(text.text, row[1].get<std::string>()) << record["normalizer"] << row[0];
    }
  });
}

TEST(TokenizerGolden, PreTokenizers) {
  for_each_record("pre_tokenizers.jsonl", [](const Json& record) {
    const auto pre_tokenizer = make_pre_tokenizer({record["pre_tokenizer"], "pre_tokenizer"});
    for (const Json& row : record["cases"]) {
      PreTokens tokens;
      tokens.text = row[0].get<std::string>();
      tokens.pieces.push_back({0, tokens.text.size(), true});
      pre_tokenizer->apply(tokens);
      std::vector<std::string> pieces;
      for (const auto& piece : tokens.pieces) pieces.emplace_back(tokens.view(piece));
      EXPECT_EQ(pieces, row[1].get<std::vector<std::string>>())
          << record["pre_tokenizer"] << row[0];
    }
  });
}

TEST(TokenizerGolden, Decoders) {
  for_each_record("decoders.jsonl", [](const Json& record) {
    const Decoder decoder{ComponentReader(record["decoder"], "decoder")};
    for (const Json& row : record["cases"]) {
      std::string text;
      const auto stage = decoder.start(text);
      for (const Json& token : row[0]) stage->put(token.get<std::string>(), true);
      stage->finish();
      EXPECT_EQ(text, row[1].get<std::string>()) << record["decoder"] << row[0];
    }
  });
}

}  // namespace
}  // namespace bl
