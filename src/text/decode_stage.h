#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace bl {

// One step between the texts of tokens and plain text, as a stream: what a stage hands on is
// certain, whatever tokens follow. Texts are valid UTF-8 and parts never cut a character.
class DecodeStage {
 public:
  explicit DecodeStage(std::unique_ptr<DecodeStage> next) : next_(std::move(next)) {}
  virtual ~DecodeStage() = default;

  // The next part of the present token; the token ends with the part that is `last`.
  virtual void put(std::string_view part, bool last) = 0;
  // There are no more tokens.
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
  virtual void token(std::string_view text) = 0;

 private:
  std::string held_;
};

// The end of every chain: appends to a string of the caller's.
class CollectStage final : public DecodeStage {
 public:
  explicit CollectStage(std::string& out) : DecodeStage(nullptr), out_(out) {}
  void put(std::string_view part, bool) override { out_.append(part); }
  void finish() override {}

 private:
  std::string& out_;
};

}  // namespace bl
