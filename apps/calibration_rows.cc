#include "calibration_rows.h"

#include <algorithm>
#include <chrono>
#include <list>
#include <optional>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "row_writer.h"

namespace bl {
namespace {

// A row that is being written.
struct OpenRow {
  std::size_t number;
  RowWriter writer;
  std::optional<RequestHandle> handle = std::nullopt;  // of the present request
  Answer answer = {};
};

void check_answer(const Answer& answer) {
  if (answer.reason == FinishReason::kError) fail(answer.code, "{}", answer.error);
  if (answer.reason == FinishReason::kCancelled) fail(ErrorCode::kCancelled, "interrupted");
}

// Writes all rows, as many at once as the engine runs.
class RowsRun {
 public:
  RowsRun(Engine& engine, const RowsToGenerate& asked)
      : engine_(engine),
        asked_(asked),
        words_(engine.session()),
        frame_(chat_frame(engine.session().text())),
        progress_("calibration", asked.rows * asked.length, Progress::Unit::kTokens) {}

  GeneratedRows run() {
    result_.rows = asked_.done;
    result_.rows.resize(static_cast<std::size_t>(asked_.rows));
    result_.conversations = frame_ ? asked_.rows / 2 : 0;
    while (next_ < asked_.rows || !open_.empty()) {
      check_interrupt();
      while (next_ < asked_.rows && std::ssize(open_) < engine_.session().sequences()) start_next();
      if (collect() && asked_.on_rows) asked_.on_rows(result_);
    }
    return std::move(result_);
  }

 private:
  void start_next() {
    const std::int64_t number = next_++;
    if (const auto& done = result_.rows[static_cast<std::size_t>(number)]; !done.empty()) {
      return progress_.advance(std::ssize(done));
    }
    const bool is_chat = frame_ && number % 2 == 1;
    open_.push_back({.number = static_cast<std::size_t>(number),
                     .writer = RowWriter(words_, is_chat ? &*frame_ : nullptr, asked_.length,
                                         seed_of_answer(asked_.seed, number))});
    if (!open_.back().writer.full()) submit(open_.back());
  }

  void submit(OpenRow& row) {
    row.answer = {};
    row.handle = engine_.submit(row.writer.next_request(engine_.tokenizer()));
  }

  // Takes all news; waits a little for the oldest row where there is none. Returns whether rows are
  // full.
  bool collect() {
    bool moved = false;
    bool any_full = false;
    for (auto row = open_.begin(); row != open_.end();) {
      moved = take(*row, std::chrono::milliseconds(0)) || moved;
      if (!row->writer.full()) {
        ++row;
        continue;
      }
      result_.rows[row->number] = row->writer.take();
      row = open_.erase(row);
      any_full = true;
    }
    if (!moved && !open_.empty()) take(open_.front(), std::chrono::milliseconds(20));
    return any_full;
  }

  // Takes the events of a row and begins its next request where one is over. Returns whether there
  // was anything.
  bool take(OpenRow& row, std::chrono::milliseconds most) {
    bool moved = false;
    while (row.handle) {
      std::optional<Event> event = row.handle->next(most);
      if (!event) break;
      moved = true;
      most = std::chrono::milliseconds(0);
      progress_.advance(std::ssize(event->ids));
      row.answer.add(std::move(*event));
    }
    if (!row.handle || !row.handle->over()) return moved;
    check_answer(row.answer);
    row.writer.add(row.answer);
    row.handle.reset();
    if (!row.writer.full()) submit(row);
    return true;
  }

  Engine& engine_;
  const RowsToGenerate asked_;
  FirstWords words_;
  std::optional<ChatFrame> frame_;
  Progress progress_;
  GeneratedRows result_;
  std::list<OpenRow> open_;
  std::int64_t next_ = 0;  // the first row that has not been looked at
};

}  // namespace

GeneratedRows generate_rows(Engine& engine, const RowsToGenerate& asked) {
  return RowsRun(engine, asked).run();
}

}  // namespace bl
