#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace bl::cuda {

// Which steps have a graph, by their keys. One is recorded when its key comes a second time and
// there is a place. Where there is none, a key that comes often takes that of the graph whose last
// use is longest ago, if that is long: keys that come in turn, more of them than there are places,
// do not push each other out, since recording takes longer than a plain step.
class StepKeys {
 public:
  // Graphs, at most; keys without one that are remembered, at most, and turns that are long.
  explicit StepKeys(std::size_t graphs = 64, std::int64_t turns = 256)
      : graphs_(graphs), turns_(turns) {}

  enum class Way : std::uint8_t { kPlain, kRecord, kRepeat };
  struct Turn {
    Way way = Way::kPlain;
    std::optional<std::uint64_t> displaced{};  // with kRecord: has no place any more
  };
  // What a step of this key is to do now.
  Turn next(std::uint64_t key);
  // It has a graph now. One that could not be recorded has no place, and may try again.
  void recorded(std::uint64_t key);
  void clear();

  std::size_t graphs() const { return last_use_.size(); }
  std::size_t remembered() const { return last_plain_.size(); }

 private:
  using Turns = std::map<std::uint64_t, std::int64_t>;  // by key: the last one
  static Turns::iterator oldest(Turns& turns);
  void remember(std::uint64_t key);

  std::size_t graphs_;
  std::int64_t turns_;
  std::int64_t now_ = 0;
  Turns last_use_;    // of those with a graph
  Turns last_plain_;  // of those without
};

}  // namespace bl::cuda
