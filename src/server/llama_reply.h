#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/generation.h"
#include "server/live_timings.h"
#include "server/llama_request.h"
#include "server/sse.h"

namespace bl::server {

// The two forms of the answer to /completion.
enum class LlamaForm {
  kNative,
  // With OpenAI's members beside llama-server's, and "[DONE]" behind a stream: for /completions,
  // the path at which clients of both ask.
  kBoth,
};

// The answers to the prompts of one request to /completion or /infill. The answer with index i·n +
// c is choice c of prompt i.
class LlamaReply : public Reply {
 public:
  LlamaReply(LlamaRequest asked, LlamaForm form);

  void on_event(std::size_t request, Event event, http::Exchange& to) override;
  void on_end(http::Exchange& to) override;
  void on_error(const Error& error, http::Exchange& to) override;
  bool on_quiet(http::Exchange& to) override;

 private:
  struct Choice {
    std::string text{};
    std::vector<std::int32_t> ids{};
    OrderedJson probabilities = OrderedJson::array();
    std::int64_t generated = 0;
    bool has_new_line = false;
    LiveTimings timings{0};
    OrderedJson last{};  // the whole answer, once it is over
  };
  struct Piece {  // of a stream
    std::string text;
    std::vector<std::int32_t> ids;
    OrderedJson probabilities = OrderedJson::array();
  };
  const std::vector<std::int32_t>& prompt_of(std::size_t index) const;
  std::size_t index_of(std::size_t request, const Event& event) const;
  std::vector<Piece> pieces_of(const Event& event) const;
  OrderedJson probability_of(const TokenLogprobs& token) const;
  OrderedJson chance(const TokenChance& chance) const;
  OrderedJson head_of(std::size_t index, const Choice& choice) const;
  void send_piece(std::size_t index, const Piece& piece, http::Exchange& to);
  void tell_progress(std::size_t index, const Event& event, http::Exchange& to);
  void send_progress(std::size_t index, http::Exchange& to);
  OrderedJson whole(std::size_t index, const Event& last) const;
  OrderedJson selected(OrderedJson answer) const;
  void add_choices(OrderedJson& answer, std::size_t index, const std::string& text) const;

  LlamaRequest asked_;
  LlamaForm form_;
  std::string id_;
  std::vector<Choice> choices_;
  SseStream stream_;
};

}  // namespace bl::server
