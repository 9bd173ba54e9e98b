#include "byte_tokenizer.h"

#include "base/json.h"
#include "base/utf8.h"

namespace bl::test {

std::unique_ptr<Tokenizer> make_byte_tokenizer(const std::vector<std::string>& special) {
  Json vocab = Json::object();
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    std::string name;
    append_utf8(static_cast<char32_t>(printable ? byte : next++), name);
    vocab[name] = byte;
  }
  Json added = Json::array();
  int id = 256;
  for (const std::string& token : special) {
    added.push_back({{"id", id++},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", false},
                           {"use_regex", false}};
  const Json document = {{"added_tokens", added},
                         {"pre_tokenizer", byte_level},
                         {"decoder", byte_level},
                         {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
  return Tokenizer::from_json(document.dump(), "", "bytes");
}

}  // namespace bl::test
