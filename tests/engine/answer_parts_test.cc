// The parts of one answer, each by itself: what choices of a request share, the two sequences of
// guidance, guesses behind a text, and what is measured.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/choice.h"
#include "engine/choice_list.h"
#include "engine/request_answers.h"
#include "engine/usage_meter.h"
#include "ops/kv_layout.h"

namespace bl {
namespace {

using Ids = std::vector<std::int32_t>;

class AnswerParts : public testing::Test {
 protected:
  std::shared_ptr<OpenRequest> open_request(std::int64_t n = 1, std::int64_t best_of = 0) {
    auto open = std::make_shared<OpenRequest>();
    open->request.prompt = {1, 2, 3};
    open->request.sampling.n = n;
    open->request.sampling.best_of = best_of;
    open->longest = 100;
    open->stream =
        std::make_shared<EventStream>(static_cast<std::int32_t>(n), std::make_shared<Waker>());
    return open;
  }
  std::unique_ptr<Choice> choice_of(const std::shared_ptr<RequestAnswers>& answers,
                                    std::int32_t index = 0) {
    return std::make_unique<Choice>(
        Choice::Args{.answers = answers, .index = index, .pool = pool_});
  }
  std::unique_ptr<Choice> guided_choice() {
    auto open = open_request();
    open->negative = {7, 8, 9, 10};
    open->beyond = 1;
    return choice_of(std::make_shared<RequestAnswers>(open));
  }
  // Computes the text as far as it is known, as a step does.
  void compute(ScheduledSequence& sequence) {
    ASSERT_TRUE(sequence.reserve(cache_, std::ssize(sequence.ids())));
    sequence.sequence().cached = std::ssize(sequence.ids());
    sequence.count_step();
  }

  PagePool pool_{8};
  PrefixCache cache_{pool_, [](std::int32_t, std::int32_t) {}, 1};
};

Ids ids_of(const ScheduledSequence& sequence) {
  return {sequence.ids().begin(), sequence.ids().end()};
}

TEST_F(AnswerParts, SiblingsWaitForTheFirstPrompt) {
  const auto answers = std::make_shared<RequestAnswers>(open_request(3));
  const auto first = choice_of(answers, 0);
  const auto second = choice_of(answers, 1);
  first->look_at_reader();
  second->look_at_reader();
  EXPECT_FALSE(first->is_blocked());
  EXPECT_TRUE(second->is_blocked());
  answers->stop_waiting();
  EXPECT_TRUE(second->is_blocked());  // one view for the whole step
  second->look_at_reader();
  EXPECT_FALSE(second->is_blocked());
}

TEST_F(AnswerParts, ASlowReaderBlocksHisChoiceAlone) {
  auto open = open_request(2);
  open->request.unread_tokens = 2;
  const auto answers = std::make_shared<RequestAnswers>(open);
  answers->stop_waiting();
  const auto first = choice_of(answers, 0);
  const auto second = choice_of(answers, 1);
  first->writer().give({.id = 5});
  first->writer().give({.id = 6});
  for (Choice* choice : {first.get(), second.get()}) choice->look_at_reader();
  EXPECT_TRUE(first->is_blocked());
  EXPECT_FALSE(second->is_blocked());
}

TEST_F(AnswerParts, TheBestAreGivenWhenTheLastIsOver) {
  const auto open = open_request(2, 3);
  const auto answers = std::make_shared<RequestAnswers>(open);
  const double logprobs[] = {-3, -1, -2};
  std::vector<std::unique_ptr<Choice>> choices;
  for (std::int32_t i = 0; i < 3; ++i) {
    Choice& choice = *choices.emplace_back(choice_of(answers, i));
    choice.append(40 + i);
    TokenLogprobs one{{40 + i, static_cast<float>(logprobs[i])}, {}};
    choice.writer().give({.id = 40 + i, .logprobs = one});
    choice.end(EngineClock::now());
    choice.tell_end({FinishReason::kMaxTokens});
    EXPECT_EQ(answers->end_one(choice.meter().usage()), i == 2);
    EXPECT_EQ(open->stream->next(EngineClock::now()).has_value(), i == 2);
  }
  // The first event was taken above; the second is of the second-best answer.
  const auto event = open->stream->next(EngineClock::now());
  ASSERT_TRUE(event);
  EXPECT_EQ(event->choice, 1);
  EXPECT_EQ(event->ids, Ids{42});
}

TEST_F(AnswerParts, AnAnswerWithAnErrorIsNotAmongTheBest) {
  const auto open = open_request(1, 2);
  const auto answers = std::make_shared<RequestAnswers>(open);
  for (std::int32_t i = 0; i < 2; ++i) {
    const auto choice = choice_of(answers, i);
    choice->append(40 + i);
    TokenLogprobs one{{40 + i, i == 0 ? -1.0f : -9.0f}, {}};
    choice->writer().give({.id = 40 + i, .logprobs = one});
    choice->end(EngineClock::now());
    const auto reason = i == 0 ? FinishReason::kError : FinishReason::kMaxTokens;
    choice->tell_end({reason, ErrorCode::kInvalidFile, "broken"});
    answers->end_one(choice->meter().usage());
  }
  EXPECT_EQ(open->stream->next(EngineClock::now())->ids, Ids{41});
}

TEST_F(AnswerParts, BothSequencesOfAGuidedAnswerGoOnTogether) {
  const auto choice = guided_choice();
  ScheduledSequence& guide = choice->pair()->guide();
  for (const std::int32_t id : {20, 21, 22}) choice->append(id);
  EXPECT_EQ(ids_of(choice->text()), (Ids{1, 2, 3, 20, 21, 22}));
  EXPECT_EQ(ids_of(guide), (Ids{7, 8, 9, 10, 20, 21, 22}));
  EXPECT_EQ(choice->generated_in(choice->text()), 3);
  EXPECT_EQ(choice->generated_in(guide), 3);
  compute(choice->text());
  compute(guide);
  choice->drop_last(2, cache_);
  EXPECT_EQ(ids_of(choice->text()), (Ids{1, 2, 3, 20}));
  EXPECT_EQ(ids_of(guide), (Ids{7, 8, 9, 10, 20}));
  // The last token that stays is computed again.
  EXPECT_EQ(choice->text().cached(), 3);
  EXPECT_EQ(guide.cached(), 4);
  choice->each_sequence([&](ScheduledSequence& sequence) { sequence.release(cache_); });
}

TEST_F(AnswerParts, RowsOfGuidanceArePairedInOrder) {
  const auto choice = guided_choice();
  GuidedPair& pair = *choice->pair();
  const std::vector<float> rows{0, 1, 2, 10, 11};
  const auto row = [&](std::size_t i) { return std::span(rows).subspan(i, 1); };
  for (const std::size_t i : {0, 1, 2}) pair.add_row(choice->text(), row(i));
  for (const std::size_t i : {3, 4}) pair.add_row(pair.guide(), row(i));
  std::vector<std::pair<float, float>> taken;
  const auto take = [&](std::span<const float> a, std::span<const float> b) {
    taken.emplace_back(a[0], b[0]);
  };
  pair.take_pairs(take);
  EXPECT_EQ(taken, (std::vector<std::pair<float, float>>{{0, 10}, {1, 11}}));
  // A guess is taken in its own step or never.
  EXPECT_FALSE(pair.has_rows(choice->text()));
  EXPECT_FALSE(pair.has_rows(pair.guide()));
}

TEST_F(AnswerParts, OnlyTheRowBehindTheTextWaits) {
  const auto choice = guided_choice();
  GuidedPair& pair = *choice->pair();
  std::vector<float> step{5, 6};
  pair.add_row(pair.guide(), std::span(step).first(1));
  pair.add_row(pair.guide(), std::span(step).last(1));
  pair.keep_waiting_row();
  pair.keep_waiting_row();  // once per sequence in the step
  step.assign(2, -1);       // the step's rows are gone
  std::vector<std::pair<float, float>> taken;
  const auto take = [&](std::span<const float> a, std::span<const float> b) {
    taken.emplace_back(a[0], b[0]);
  };
  pair.take_pairs(take);
  EXPECT_TRUE(taken.empty());
  EXPECT_TRUE(pair.has_rows(pair.guide()));
  const std::vector<float> next{1, 2};
  pair.add_row(choice->text(), std::span(next).first(1));
  pair.add_row(choice->text(), std::span(next).last(1));
  pair.take_pairs(take);
  EXPECT_EQ(taken, (std::vector<std::pair<float, float>>{{1, 5}}));
}

TEST_F(AnswerParts, APreemptedSequenceForgetsItsRowAlone) {
  const auto choice = guided_choice();
  GuidedPair& pair = *choice->pair();
  const std::vector<float> row{1};
  pair.add_row(choice->text(), row);
  choice->preempt(pair.guide(), cache_);
  EXPECT_TRUE(pair.has_rows(choice->text()));
  EXPECT_EQ(choice->meter().usage().preemptions, 0);
  choice->preempt(choice->text(), cache_);
  EXPECT_FALSE(pair.has_rows(choice->text()));
  EXPECT_EQ(choice->meter().usage().preemptions, 1);
}

TEST_F(AnswerParts, GuessesAreNotPartOfTheText) {
  const auto choice = choice_of(std::make_shared<RequestAnswers>(open_request()));
  ScheduledSequence& text = choice->text();
  choice->append(20);
  text.append_guesses(Ids{21, 22, 23});
  EXPECT_EQ(text.length(), 4);
  EXPECT_EQ(choice->generated(), 1);
  compute(text);
  EXPECT_EQ(text.cached(), 4);
  choice->begin_round(3);
  text.remove_guesses();
  choice->append(21);
  EXPECT_FALSE(choice->confirm_guess(5, 29));
  EXPECT_FALSE(choice->confirm_guess(6, 21));
  EXPECT_TRUE(choice->confirm_guess(5, 21));
  EXPECT_EQ(text.cached(), 5);
  EXPECT_EQ(choice->meter().usage().accepted_tokens, 1);
  EXPECT_EQ(choice->meter().usage().drafted_tokens, 3);
  text.release(cache_);
}

TEST_F(AnswerParts, APreemptedSequenceHoldsNoPages) {
  const auto choice = choice_of(std::make_shared<RequestAnswers>(open_request()));
  ScheduledSequence& text = choice->text();
  EXPECT_TRUE(text.admit());
  compute(text);
  EXPECT_EQ(text.state().pages, 1);
  choice->preempt(text, cache_);
  EXPECT_FALSE(text.is_running());
  EXPECT_EQ(text.state().pages, 0);
  EXPECT_EQ(text.cached(), 0);
  EXPECT_FALSE(text.admit());  // not for the first time
}

TEST_F(AnswerParts, AShortenedTextIsNoLongerKnownToTheDraft) {
  AnswerDraft draft;
  draft.set_guesses({1, 2}, 1, 10);
  EXPECT_EQ(draft.known(), 10);
  draft.cut(12);
  EXPECT_EQ(draft.known(), 10);
  draft.cut(7);
  EXPECT_EQ(draft.known(), 7);
  draft.start_anew();
  EXPECT_EQ(draft.known(), 0);
  EXPECT_TRUE(draft.guesses().empty());
}

TEST_F(AnswerParts, ADraftIsAskedOnceWhatItHasNotRead) {
  AnswerDraft draft;
  int asked = 0;
  const auto ask = [&] { return ++asked * 100; };
  EXPECT_EQ(draft.unread(150, ask), 100);
  EXPECT_EQ(draft.unread(151, ask), 100);
  draft.memory() = std::make_unique<DraftMemory>();
  draft.set_guesses({}, 0, 140);
  EXPECT_EQ(draft.unread(152, ask), 12);
}

TEST_F(AnswerParts, TheListKeepsTheOrderOfRanks) {
  ChoiceList list;
  const auto add = [&](double rank, std::int64_t n) {
    auto open = open_request(n);
    open->rank = rank;
    const auto answers = std::make_shared<RequestAnswers>(open);
    std::vector<std::unique_ptr<Choice>> made;
    for (std::int32_t i = 0; i < n; ++i) made.push_back(choice_of(answers, i));
    list.add(std::move(made));
  };
  add(5, 2);
  add(1, 1);
  add(5, 1);  // behind those that were there
  add(3, 1);
  std::vector<std::pair<double, std::int32_t>> order;
  for (const auto& choice : list.all()) order.emplace_back(choice->open().rank, choice->index());
  EXPECT_EQ(order,
            (std::vector<std::pair<double, std::int32_t>>{{1, 0}, {3, 0}, {5, 0}, {5, 1}, {5, 0}}));
  EXPECT_EQ(list.requests(), 4);
  list.all()[2]->end(EngineClock::now());
  list.count_ended(false);
  EXPECT_EQ(list.all().size(), 5u);  // a step may still refer to it
  list.sweep();
  EXPECT_EQ(list.all().size(), 4u);
  EXPECT_EQ(list.requests(), 4);
}

TEST(UsageMeter, TimeIsThatOfTheStageInWhichTheAnswerEnds) {
  const auto at = [](int seconds) {
    return EngineClock::time_point(std::chrono::seconds(100 + seconds));
  };
  UsageMeter waiting(at(0), 10);
  waiting.finish(at(3), 0);
  EXPECT_EQ(waiting.usage().queue_seconds, 3);
  EXPECT_EQ(waiting.usage().prefill_seconds, 0);

  UsageMeter reading(at(0), 10);
  reading.admit(at(2), 2 * kPageSlots + 5);
  reading.find(kPageSlots);
  reading.finish(at(7), 0);
  EXPECT_EQ(reading.usage().queue_seconds, 2);
  EXPECT_EQ(reading.usage().prefill_seconds, 5);
  EXPECT_EQ(reading.usage().cached_tokens, 3 * kPageSlots + 5);
  EXPECT_EQ(reading.usage().cached_pages, 3);

  UsageMeter decoding(at(0), 10);
  decoding.admit(at(1), 0);
  decoding.finish_prompt(at(3));
  decoding.finish(at(8), 20);
  EXPECT_EQ(decoding.usage().prefill_seconds, 2);
  EXPECT_EQ(decoding.usage().decode_seconds, 5);
  EXPECT_EQ(decoding.usage().generated_tokens, 20);
}

TEST(UsageMeter, RoundsAddUpToTheSums) {
  UsageMeter meter({}, 10);
  meter.begin_round(3, true);
  meter.accept_guess();
  meter.begin_round(2, false);
  meter.accept_guess();
  meter.begin_round(1, true);
  EXPECT_EQ(meter.rounds(), 2);
  EXPECT_EQ(meter.usage().drafted_tokens, 6);
  EXPECT_EQ(meter.usage().accepted_tokens, 2);
  EXPECT_EQ(meter.take_rounds(), (std::vector<DraftRound>{{3, 1}, {1, 0}}));
}

}  // namespace
}  // namespace bl
