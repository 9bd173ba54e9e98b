// The tokenizer as a whole: configuration, hostile files and texts, streams, threads. What ids come
// out is tokenizer_golden_test.cc's business.

#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "support/data.h"
#include "text/text_stream.h"

namespace bl {
namespace {

using Ids = std::vector<std::int32_t>;

// A byte-level vocabulary of a, b, c, ab, abc and the 256 bytes it needs.
Json small_document() {
  Json vocabulary = {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"abc", 4}, {"Ġ", 5}, {"Ġab", 6}};
  return {{"version", "1.0"},
          {"added_tokens",
           {{{"id", 7}, {"content", "<s>"}, {"special", true}, {"normalized", false}},
            {{"id", 8}, {"content", "</s>"}, {"special", true}, {"normalized", false}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"a b", "ab c", "Ġ ab"}}}}};
}

std::unique_ptr<Tokenizer> make(const Json& document, const char* config = "") {
  return Tokenizer::from_json(document.dump(), config, "small.json");
}

// The message of the error that `document` causes; empty if it loads.
std::string refusal(const Json& document) {
  try {
    make(document);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Tokenizer, EncodesAndDecodes) {
  const auto tokenizer = make(small_document());
  EXPECT_EQ(tokenizer->encode("abc ab<s>b"), (Ids{4, 6, 7, 1}));
  EXPECT_EQ(tokenizer->decode(Ids{4, 6, 7, 1}, false), "abc ab<s>b");
  EXPECT_EQ(tokenizer->decode(Ids{4, 6, 7, 1}, true), "abc abb");
  EXPECT_EQ(tokenizer->decode(Ids{-1, 99, 1 << 30, 4}, true), "abc");
  EXPECT_EQ(tokenizer->vocab_size(), 9);
  EXPECT_EQ(tokenizer->token_to_id("ab"), 3);
  EXPECT_EQ(tokenizer->token_to_id("</s>"), 8);
  EXPECT_EQ(tokenizer->token_to_id("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer->id_to_token(6), "Ġab");
  EXPECT_TRUE(tokenizer->is_special(7));
  EXPECT_FALSE(tokenizer->is_special(4));
  EXPECT_TRUE(tokenizer->encode("").empty());
}

// As transformers with split_special_tokens: only what is flagged special becomes text.
TEST(Tokenizer, SpecialTokensMayBeText) {
  Json document = small_document();
  const Json letters = {{"<", 7}, {"s", 8}, {">", 9}, {"/", 10}};
  for (const auto& [letter, id] : letters.items()) document["model"]["vocab"][letter] = id;
  Json& added = document["added_tokens"];
  added[0]["id"] = 11;
  added[1]["id"] = 12;
  added.push_back({{"id", 13}, {"content", "<a>"}, {"special", false}});
  added.push_back({{"id", 14}, {"content", "<c>"}, {"special", true}, {"normalized", true}});
  const auto tokenizer = make(document);
  EXPECT_EQ(tokenizer->encode("a<s>b<a></s><c>"), (Ids{0, 11, 1, 13, 12, 14}));
  EXPECT_EQ(tokenizer->encode("a<s>b<a></s><c>", {.parse_special = false}),
            (Ids{0, 7, 8, 9, 1, 13, 7, 10, 8, 9, 7, 2, 9}));
}

TEST(Tokenizer, ConfigurationDecidesWithoutPostProcessor) {
  const char* config = R"({"add_bos_token": true, "add_eos_token": true, "bos_token": "<s>",
    "eos_token": {"content": "</s>"}, "model_max_length": 1000000000000000019884624838656,
    "chat_template": [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}]})";
  const auto tokenizer = make(small_document(), config);
  EXPECT_EQ(tokenizer->encode("a"), (Ids{7, 0, 8}));
  EXPECT_EQ(tokenizer->encode("a", {.add_special = false}), (Ids{0}));
  EXPECT_EQ(tokenizer->bos_id(), 7);
  EXPECT_EQ(tokenizer->eos_token(), "</s>");
  EXPECT_EQ(tokenizer->chat_template(), "A");
  ASSERT_EQ(tokenizer->chat_templates().size(), 2u);
  EXPECT_EQ(tokenizer->chat_templates()[1].second, "B");

  Json with_processor = small_document();
  with_processor["post_processor"] = {{"type", "ByteLevel"}};
  EXPECT_EQ(make(with_processor, config)->encode("a"), (Ids{0}));
}

TEST(Tokenizer, LoadsFromAFolder) {
  const auto folder = test::scratch_dir("tokenizer");
  EXPECT_THROW(Tokenizer::load(folder), Error);
  write_file_atomically(folder / "tokenizer.json", small_document().dump());
  write_file_atomically(folder / "special_tokens_map.json", R"({"bos_token": "<s>"})");
  write_file_atomically(folder / "chat_template.jinja", "hello");
  const auto tokenizer = Tokenizer::load(folder);
  EXPECT_EQ(tokenizer->bos_id(), 7);
  EXPECT_EQ(tokenizer->chat_template(), "hello");
}

TEST(Tokenizer, TextThatIsNotUtf8CountsAsReplacementCharacters) {
  Json document = small_document();
  document["pre_tokenizer"] = nullptr;
  document["decoder"] = {{"type", "Fuse"}};
  document["model"]["vocab"]["\xef\xbf\xbd"] = 7;
  const auto tokenizer = make(document);
  EXPECT_EQ(tokenizer->encode("a\xff"), (Ids{0, 7}));
  EXPECT_EQ(tokenizer->encode("\xe4\xbd"), (Ids{7}));                   // one truncated character
  EXPECT_EQ(tokenizer->encode("\xed\xa0\x80"), (Ids{7, 7, 7}));         // a surrogate
  EXPECT_EQ(tokenizer->encode("\xf0\x80\x80\x80"), (Ids{7, 7, 7, 7}));  // overlong
  EXPECT_EQ(tokenizer->encode("\xc0\xaf"), (Ids{7, 7}));
}

TEST(Tokenizer, RefusesHostileDocuments) {
  const auto with = [](const char* pointer, const Json& value) {
    Json document = small_document();
    document[Json::json_pointer(pointer)] = value;
    return refusal(document);
  };
  EXPECT_TRUE(contains(with("/model/merges", {"a zz"}), "model.merges[0]: 'azz' is not in"));
  EXPECT_TRUE(contains(with("/model/merges", {"a b c"}), "model.merges: entry 0"));
  EXPECT_TRUE(
      contains(with("/model/merges", Json::parse(R"([["a", 1]])")), "model.merges: entry 0"));
  EXPECT_TRUE(contains(with("/model/merges", "x"), "model.merges: expected a list"));
  EXPECT_TRUE(contains(with("/model/vocab/a", 1u << 31), "the id of 'a' is 2147483648"));
  EXPECT_TRUE(contains(with("/model/vocab/a", -1), "the id of 'a' is -1"));
  EXPECT_TRUE(contains(with("/model/vocab/a", "0"), "the id of 'a'"));
  EXPECT_TRUE(contains(with("/model/vocab", 3), "model.vocab: expected an object"));
  EXPECT_TRUE(contains(with("/model/type", "Magic"), "'Magic' is not known"));
  EXPECT_TRUE(contains(with("/model/unk_token", 3), "model.unk_token: expected a string"));
  EXPECT_TRUE(contains(with("/model/byte_fallback", 3), "model.byte_fallback"));
  EXPECT_TRUE(contains(with("/model", 3), "model: expected an object"));
  EXPECT_TRUE(contains(with("/added_tokens", 3), "added_tokens: expected a list"));
  EXPECT_TRUE(contains(with("/added_tokens/0", 3), "added_tokens: an entry lacks"));
  EXPECT_TRUE(contains(with("/added_tokens/0/content", std::string(5000, 'x')), "5000 bytes"));
  EXPECT_TRUE(contains(with("/added_tokens/0/id", 4000000000u), "4000000000"));
  EXPECT_TRUE(contains(with("/normalizer", {{"type", "Nothing"}}), "normalizer: normalizer type"));
  EXPECT_TRUE(contains(with("/normalizer", {{"type", 3}}), "normalizer.type: expected a string"));
  EXPECT_TRUE(contains(with("/normalizer", {{"type", "Replace"}, {"pattern", 1}, {"content", ""}}),
                       "normalizer.pattern: expected an object"));
  EXPECT_TRUE(contains(with("/decoder", {{"type", "Strip"}, {"content", "ab"}}),
                       "decoder.content: expected one character"));
  EXPECT_TRUE(contains(with("/post_processor", {{"type", "TemplateProcessing"},
                                                {"single", {{{"SpecialToken", {{"id", "x"}}}}}},
                                                {"special_tokens", Json::object()}}),
                       "special_tokens: expected an entry for 'x'"));
}

TEST(Tokenizer, RefusesHostilePatternsAndCharsmaps) {
  const auto pattern = [](const std::string& regex) {
    Json document = small_document();
    document["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}};
    return refusal(document);
  };
  for (const char* regex : {"(", ")", "[", "[a", "\\", "(?<x", "*", "\\p{Nope}", "[[:alpha:]",
                            "(?~a)", "\\x{110000}", "(?#", "\\C", "(?P<", "[\\"}) {
    EXPECT_TRUE(contains(pattern(regex), "small.json: pre_tokenizer.pattern")) << regex;
  }
  EXPECT_NE(pattern(std::string(100000, 'a')), "");
  EXPECT_NE(pattern(std::string(10000, '(')), "");
  EXPECT_NE(pattern(std::string(10000, '[')), "");
  EXPECT_NE(pattern("((((a{1000}){1000}){1000}){1000})"), "");

  Json document = small_document();
  for (const char* blob : {"", "AAAA", "!!!!", "/////wAA", "BAAAAAAAAAA="}) {
    document["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", blob}};
    const std::string message = refusal(document);
    EXPECT_TRUE(message.empty() || contains(message, "normalizer.precompiled_charsmap")) << blob;
  }
}

TEST(Tokenizer, PatternsThatExplodeEndInAnError) {
  Json document = small_document();
  document["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "(a|aa)+$|((a+)+)+b"}}}, {"behavior", "Isolated"}};
  const auto tokenizer = make(document);
  EXPECT_THROW(tokenizer->encode(std::string(5000, 'a') + "c"), Error);
}

TEST(Tokenizer, DeepNestingIsRefused) {
  std::string text = small_document().dump();
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += R"({"type":"Sequence","normalizers":[)";
  text.replace(text.find("\"normalizer\":null"), 17, "\"normalizer\":" + deep);
  EXPECT_THROW(Tokenizer::from_json(text, "", "deep.json"), Error);

  Json nested = {{"type", "NFC"}};
  for (int i = 0; i < 60; ++i)
    nested = {{"type", "Sequence"}, {"normalizers", Json::array({nested})}};
  Json document = small_document();
  document["normalizer"] = nested;
  EXPECT_TRUE(contains(refusal(document), "at most 16 levels"));
}

TEST(Tokenizer, CutFilesAreRefused) {
  const std::string text = small_document().dump();
  for (std::size_t size = 0; size < text.size(); size += 7) {
    EXPECT_THROW(Tokenizer::from_json(text.substr(0, size), "", "cut.json"), Error) << size;
  }
}

TEST(Tokenizer, HostileSentencePieceModelsAreRefused) {
  const std::string model =
      read_file(test::unpacked("tokenizers") / "models" / "unigram_rules.model");
  for (std::size_t size = 0; size < model.size(); size += 13) {
    // A cut between two fields is a whole, smaller file; everything else must be refused.
    try {
      Tokenizer::from_sentencepiece(model.substr(0, size), "", "cut.model")->encode("the loom");
    } catch (const Error& error) {
      EXPECT_TRUE(contains(error.what(), "cut.model")) << error.what();
    }
  }
  for (const std::string& bytes : {std::string(), std::string("\x0a\xff\xff\xff\xff\x0f"),
                                   std::string("\x0b"), std::string(20, '\xff')}) {
    EXPECT_THROW(Tokenizer::from_sentencepiece(bytes, "", "bad.model"), Error);
  }
}

TEST(Tokenizer, SentencePieceTakesSpecialTokensFromTheConfiguration) {
  const std::string model = read_file(test::unpacked("tokenizers") / "models" / "bpe_bytes.model");
  const auto plain = Tokenizer::from_sentencepiece(model, "", "m");
  const auto bos = plain->bos_id();
  ASSERT_TRUE(bos);
  EXPECT_EQ(plain->encode("the").front(), *bos);
  // Without a configuration the text of a control piece is plain text.
  EXPECT_GT(plain->encode("<s>", {.add_special = false}).size(), 1u);
  EXPECT_EQ(plain->decode(Ids{*bos}, true), "");
  EXPECT_EQ(plain->decode(Ids{*bos}, false), "<s>");

  const char* config = R"({"bos_token": "<s>", "add_bos_token": false, "legacy": false,
    "added_tokens_decoder": {"5000": {"content": "<new>", "special": true}}})";
  const auto configured = Tokenizer::from_sentencepiece(model, config, "m");
  EXPECT_EQ(configured->encode("<s>"), (Ids{*bos}));
  EXPECT_EQ(configured->token_to_id("<new>"), 5000);
  EXPECT_EQ(configured->vocab_size(), 5001);
  // Not legacy: no dummy prefix behind an added token.
  const Ids after = configured->encode("<new>the");
  Ids with_prefix{5000};
  for (const auto id : configured->encode("the")) with_prefix.push_back(id);
  EXPECT_NE(after, with_prefix);
}

TEST(Tokenizer, StreamsOnlyWholeCharacters) {
  Json document = small_document();
  // The three bytes of U+4F60 and a lone first byte, as tokens of one byte each.
  document["model"]["vocab"]["ä"] = 7;
  document["model"]["vocab"]["½"] = 8;
  document["model"]["vocab"]["ł"] = 9;
  const auto tokenizer = make(document);
  TextStream stream(*tokenizer, true);
  EXPECT_EQ(stream.push(4), "abc");
  EXPECT_EQ(stream.push(7), "");
  EXPECT_EQ(stream.push(8), "");
  const std::string whole = stream.push(9);
  EXPECT_EQ(stream.push(7), "");
  EXPECT_EQ(stream.push(0),
            "\xef\xbf\xbd"
            "a");
  EXPECT_EQ(stream.push(7), "");
  EXPECT_EQ(stream.finish(), "\xef\xbf\xbd");
  EXPECT_EQ(whole, tokenizer->decode(Ids{7, 8, 9}, true));
}

TEST(Tokenizer, ManyThreadsShareOne) {
  const auto tokenizer = make(small_document());
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "abc ab b ac ";
  const Ids expected = tokenizer->encode(text);
  std::vector<std::thread> threads;
  std::vector<Ids> results(4);
  for (auto& result : results) {
    threads.emplace_back([&] { result = tokenizer->encode(text); });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

// A quadratic step would take minutes here; the bound is generous for slow machines and sanitizers.
TEST(Tokenizer, LongTextsOfOneKindStayFast) {
  std::vector<std::string> texts = {std::string(1 << 18, 'a'), std::string(1 << 18, ' '),
                                    std::string(1 << 18, '\n')};
  for (const char* unit : {"\xf0\x9f\x98\x80", "\xcc\xa3\xcc\x81", "ab", "<s"}) {
    std::string text;
    while (text.size() < (1u << 18)) text += unit;
    texts.push_back(std::move(text));
  }
  const auto bases = test::unpacked("tokenizers") / "bases";
  for (const char* base : {"byte_level", "fallback", "suffix", "unigram", "word_piece"}) {
    Json document = read_json_file(bases / (std::string(base) + ".json"));
    const auto tokenizer = make(document);
    for (const std::string& text : texts) {
      // Processor time: other programs on the machine must not fail this.
      const std::clock_t begin = std::clock();
      const Ids ids = tokenizer->encode(text);
      tokenizer->decode(ids, false);
      const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
      EXPECT_LT(seconds, 30) << base << " " << text.substr(0, 4);
    }
  }
}

}  // namespace
}  // namespace bl
