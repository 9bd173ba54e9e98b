#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/generation.h"
#include "server/sse.h"

namespace bl::server {

// The generations of Kobold's clients, which ask for the text so far, or end an answer, by a name
// of their own ("genkey"). A client reaches the answers of its own key alone. Thread-safe.
class KoboldAnswers {
 public:
  class Text {
   public:
    void add(const std::string& more);
    std::string read() const;

   private:
    mutable std::mutex mutex_;
    std::string text_;
  };
  // `owner`: the name of the client's key.
  void add(const std::string& owner, const std::string& genkey,
           std::weak_ptr<Generation> generation, std::shared_ptr<Text> text);
  // The text of the answer that is being made; empty where there is none. An empty genkey is the
  // owner's newest answer.
  std::string text_of(const std::string& owner, const std::string& genkey) const;
  // Ends it. Returns whether there was one.
  bool abort(const std::string& owner, const std::string& genkey);

 private:
  struct Entry {
    std::string owner;
    std::string genkey;
    std::weak_ptr<Generation> generation;
    std::shared_ptr<Text> text;
  };
  // Each calls visit(entry, generation) for the entries that run, the newest first, until it
  // returns false.
  template <class Visit>
  void each(const std::string& owner, const std::string& genkey, Visit&& visit) const;

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

// The answer to /api/v1/generate, whole, or to /api/extra/generate/stream.
class KoboldReply : public Reply {
 public:
  struct Args {
    bool stream = false;
    std::size_t choices = 1;
    bool keeps_stop = false;                    // the answer's text ends with the stop string
    std::shared_ptr<KoboldAnswers::Text> text;  // also gets the first answer's text
  };
  explicit KoboldReply(Args args);

  void on_event(std::size_t request, Event event, http::Exchange& to) override;
  void on_end(http::Exchange& to) override;
  void on_error(const Error& error, http::Exchange& to) override;
  bool on_quiet(http::Exchange& to) override;

 private:
  void send(const std::string& text, const char* finish, http::Exchange& to);

  struct Choice {
    std::string text{};
    const char* finish = "length";
    Usage usage{};
  };
  Args args_;
  std::vector<Choice> choices_;
  SseStream stream_;
};

}  // namespace bl::server
