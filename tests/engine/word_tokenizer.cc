#include "word_tokenizer.h"

#include "base/json.h"

namespace bl::test {

std::unique_ptr<Tokenizer> make_word_tokenizer(const std::vector<std::string>& pieces,
                                               const std::vector<std::string>& special,
                                               const char* decoder) {
  Json vocab = Json::object();
  int id = 0;
  for (const std::string& piece : pieces) vocab[piece] = id++;
  Json added = Json::array();
  for (const std::string& token : special) {
    added.push_back({{"id", id++}, {"content", token}, {"special", true}});
  }
  const Json document = {{"added_tokens", added},
                         {"decoder", {{"type", decoder}}},
                         {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
  return Tokenizer::from_json(document.dump(), "", "words");
}

std::vector<std::string> letter_pieces(std::size_t count, int letters) {
  std::vector<std::string> pieces{""};
  for (std::size_t i = 0; pieces.size() <= count; ++i) {
    for (int letter = 0; letter < letters; ++letter) {
      pieces.push_back(pieces[i] + static_cast<char>('a' + letter));
    }
  }
  return {pieces.begin() + 1, pieces.begin() + 1 + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace bl::test
