#include "sample/grammar_tokenizers.h"

#include <fmt/format.h>

#include "base/json.h"
#include "text/byte_level.h"

namespace bl::test {
namespace {

Json special(int id, const char* content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

GrammarTokenizer make(const Json& vocab, const Json& decoder, bool fallback) {
  const int first = static_cast<int>(vocab.size());
  const Json document = {{"version", "1.0"},
                         {"added_tokens", {special(first, "<s>"), special(first + 1, "</s>")}},
                         {"normalizer", nullptr},
                         {"pre_tokenizer", nullptr},
                         {"post_processor", nullptr},
                         {"decoder", decoder},
                         {"model",
                          {{"type", "BPE"},
                           {"vocab", vocab},
                           {"merges", Json::array()},
                           {"byte_fallback", fallback}}}};
  return {Tokenizer::from_json(document.dump(), "{}", "test"), first + 1};
}

}  // namespace

std::vector<std::string> json_words() {
  return {"{\"",      "\":",      "\": ",     "\", \"",   ", \"",     "\"}",   "}}",   "]}",
          "[]",       "{}",       "true",     "false",    "null",     " true", "12",   "0.",
          "e+",       "-1",       "name",     "age",      " name",    "ab",    "abc",  "the",
          " the",     "\\n",      "\\u00",    "  ",       "\n  ",     "\n",    "\t",   "],",
          "},",       "\"a\":",   "::",       "<a>",      "</a>",     "a\"",   "\" :", "1,",
          "\xc3\xa9", "\xe2\x82", "\x82\xac", "\xf0\x9f", "\x98\x80", "x\xc3", "id",   "\"id\"",
          "99",       "00"};
}

GrammarTokenizer byte_level_tokenizer(const std::vector<std::string>& words) {
  Json vocab = Json::object();
  const auto add = [&](const std::string& bytes) {
    std::string written;
    append_byte_level(bytes, written);
    if (!vocab.contains(written)) vocab[written] = vocab.size();
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  for (const std::string& word : words) add(word);
  return make(vocab, {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}},
              false);
}

GrammarTokenizer byte_fallback_tokenizer(const std::vector<std::string>& words) {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = vocab.size();
  for (int byte = 0x21; byte < 0x7f; ++byte) {
    vocab[std::string(1, static_cast<char>(byte))] = vocab.size();
  }
  const std::string mark = "\xe2\x96\x81";
  for (const std::string& word : words) {
    std::string written;
    bool whole = true;
    for (const char c : word) {
      whole = whole && static_cast<unsigned char>(c) < 0x80;
      written += c == ' ' ? mark : std::string(1, c);
    }
    if (whole && !vocab.contains(written)) vocab[written] = vocab.size();
  }
  if (!vocab.contains(mark)) vocab[mark] = vocab.size();
  const Json decoder = {{"type", "Sequence"},
                        {"decoders",
                         {{{"type", "Replace"}, {"pattern", {{"String", mark}}}, {"content", " "}},
                          {{"type", "ByteFallback"}},
                          {{"type", "Fuse"}},
                          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  return make(vocab, decoder, true);
}

}  // namespace bl::test
