#include "word_tokenizer.h"

#include "base/json.h"

namespace bl::test {

std::unique_ptr<Tokenizer> make_word_tokenizer(const std::vector<std::string>& pieces,
                                               const std::vector<std::string>& special) {
  Json vocab = Json::object();
  int id = 0;
  for (const std::string& piece : pieces) vocab[piece] = id++;
  Json added = Json::array();
  for (const std::string& token : special) {
    added.push_back({{"id", id++}, {"content", token}, {"special", true}});
  }
  const Json document = {
      {"added_tokens", added},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
  return Tokenizer::from_json(document.dump(), "", "words");
}

std::vector<std::string> letter_pieces(std::size_t count, int letters) {
  std::vector<std::string> pieces;
  for (std::size_t from = 0, first = 0; pieces.size() < count; first = from) {
    from = pieces.size();
    const std::size_t end = from;
    const auto append = [&](const std::string& head) {
      for (char c = 'a'; c < 'a' + letters && pieces.size() < count; ++c) {
        pieces.push_back(head + c);
      }
    };
    if (end == 0) append("");
    for (std::size_t i = first; i < end && pieces.size() < count; ++i) {
      append(std::string(pieces[i]));
    }
  }
  return pieces;
}

}  // namespace bl::test
