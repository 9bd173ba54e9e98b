#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace bl {

// One step from the texts of tokens to plain text, as a stream: text that a stage hands on is
// certain, whatever tokens follow. All text is valid UTF-8, and parts never cut a character.
class DecodeStage {
 public:
  explicit DecodeStage(std::unique_ptr<DecodeStage> next) : next_(std::move(next)) {}
  virtual ~DecodeStage() = default;

  // Takes the next part of the current token; the token ends with its `last` part.
  virtual void put(std::string_view part, bool last) = 0;
  // Says that there are no more tokens. A stage hands on what it held back.
  virtual void finish() { next_->finish(); }

 protected:
  DecodeStage& next() { return *next_; }

 private:
  std::unique_ptr<DecodeStage> next_;
};

// A stage that looks at whole tokens.
class WholeTokenStage : public DecodeStage {
 public:
  using DecodeStage::DecodeStage;
  void put(std::string_view part, bool last) final {
    if (last && held_.empty()) {
      token(part);
      return;
    }
    held_.append(part);
    if (!last) return;
    std::string whole;
    whole.swap(held_);
    token(whole);
  }

 protected:
  // Takes a whole token.
  virtual void token(std::string_view text) = 0;

 private:
  std::string held_;
};

// The end of every chain: appends to a string that the caller owns.
class CollectStage final : public DecodeStage {
 public:
  explicit CollectStage(std::string& out) : DecodeStage(nullptr), out_(out) {}
  void put(std::string_view part, bool) override { out_.append(part); }
  void finish() override {}

 private:
  std::string& out_;
};

}  // namespace bl
