#include "batch_run.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "engine/caught_error.h"

namespace bl {
namespace {

// Tells faults that no request is to blame for. They must not become answers, since the next run
// would not try those requests again.
bool ends_the_batch(const Error& error) {
  return error.code() == ErrorCode::kIo || error.code() == ErrorCode::kDevice ||
         error.code() == ErrorCode::kCancelled;
}

// Adds all events that have come to `answers`, and waits up to `most` for the first one. Returns
// whether there was any.
bool take(RequestHandle& handle, std::vector<Answer>& answers, std::chrono::milliseconds most) {
  bool moved = false;
  while (std::optional<Event> event = handle.next(most)) {
    answers[static_cast<std::size_t>(event->choice)].add(std::move(*event));
    moved = true;
    most = std::chrono::milliseconds(0);
  }
  return moved;
}

}  // namespace

BatchRun::BatchRun(Engine& engine, const ModelSession& session, Work work)
    : engine_(engine),
      session_(session),
      work_(std::move(work)),
      input_(work_.input),
      output_(work_.output),
      logprobs_(session.tokenizer()),
      formats_(session.defaults().end_tokens),
      progress_("batch", work_.total, Progress::Unit::kItems) {
  if (output_.done() > 0) log_info("{} answers exist already", output_.done());
  progress_.update(output_.done());
}

void BatchRun::run() {
  bool more = true;
  while (more || !open_.empty()) {
    check_interrupt();
    // Have more lines open than run at once, so that the next step finds work when answers end.
    while (more && static_cast<std::int64_t>(open_.size()) < work_.open) more = start_next();
    collect();
  }
  if (input_.number() < work_.total) {
    fail(ErrorCode::kInvalidFile, "{} has {} requests now, but had {} when it was checked",
         work_.input.string(), input_.number(), work_.total);
  }
  log_info("{} answers, {} of them errors", answered_, failed_);
}

// Submits the next request that has no answer yet. Returns false at the end of the input.
bool BatchRun::start_next() {
  const std::optional<BatchLine> line = input_.next();
  if (!line) return false;
  if (output_.is_done(line->custom_id, input_.number())) return true;
  try {
    if (line->error) throw Error(*line->error);
    submit(*line);
  } catch (const Error& error) {
    fail_line(line->custom_id, input_.number(), error);
  } catch (const std::exception&) {
    fail_line(line->custom_id, input_.number(), caught_error());
  }
  return true;
}

void BatchRun::submit(const BatchLine& line) {
  OpenLine open(BatchRequest(line.document, session_, work_.otherwise, formats_), input_.number());
  warn_of_unknown(open.request.unknown_fields());
  for (Request& request : open.request.requests()) {
    const std::int64_t choices = request.sampling.n;
    open.handles.push_back(engine_.submit(std::move(request)));
    // After submit(), which has checked the number of choices.
    open.answers.emplace_back(static_cast<std::size_t>(choices));
  }
  open_.push_back(std::move(open));
}

// Names fields without effect, once for all requests that have the same ones.
void BatchRun::warn_of_unknown(const std::vector<std::string>& fields) {
  constexpr std::size_t kMostSets = 50;  // a file may have other fields in every line
  constexpr std::size_t kMostNames = 20;
  if (fields.empty() || warned_.size() >= kMostSets || !warned_.insert(fields).second) return;
  std::string names;
  for (std::size_t i = 0; i < std::min(fields.size(), kMostNames); ++i) {
    names += (i == 0 ? "" : ", ") + json_shown(Json(fields[i]));
  }
  if (fields.size() > kMostNames) names += fmt::format(" and {} more", fields.size() - kMostNames);
  log_warning("{}: request {} has unknown fields, which have no effect: {}", work_.input.string(),
              input_.number(), names);
}

// Reads all open lines and finishes those that are over; waits a little when there is no news.
void BatchRun::collect() {
  bool moved = false;
  for (auto line = open_.begin(); line != open_.end();) {
    bool over = true;
    for (std::size_t i = 0; i < line->handles.size(); ++i) {
      moved = take(line->handles[i], line->answers[i], std::chrono::milliseconds(0)) || moved;
      over = over && line->handles[i].over();
    }
    if (over) finish(*line);
    line = over ? open_.erase(line) : std::next(line);
    moved = moved || over;
  }
  if (moved || open_.empty()) return;
  OpenLine& first = open_.front();
  for (std::size_t i = 0; i < first.handles.size(); ++i) {
    if (first.handles[i].over()) continue;
    take(first.handles[i], first.answers[i], std::chrono::milliseconds(20));
    return;
  }
}

void BatchRun::finish(const OpenLine& line) {
  const std::string& id = line.request.custom_id();
  Json answer;
  try {
    answer = line.request.response(line.answers, line.number, logprobs_);
  } catch (const Error& error) {
    return fail_line(id, line.number, error);
  }
  write(answer);
}

void BatchRun::fail_line(const std::string& id, std::int64_t number, const Error& error) {
  if (ends_the_batch(error)) {
    fail(error.code(), "{}; {} of {} requests are answered, and the same command continues",
         error.what(), output_.done(), work_.total);
  }
  write(BatchRequest::failure(id, number, error));
  ++failed_;
}

void BatchRun::write(const Json& answer) {
  output_.write(answer);
  ++answered_;
  progress_.update(output_.done());
}

}  // namespace bl
