#include "server/served_model.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/check.h"
#include "base/random_seed.h"
#include "http/message.h"

namespace bl::server {
namespace {

std::string_view without_latest(std::string_view name) {
  constexpr std::string_view kLatest = ":latest";
  if (name.size() > kLatest.size() &&
      http::equal_without_case(name.substr(name.size() - kLatest.size()), kLatest)) {
    name.remove_suffix(kLatest.size());
  }
  return name;
}

}  // namespace

ServedModel::ServedModel(Args args)
    : args_(std::move(args)), logprobs_(args_.engine->tokenizer()), created_(std::time(nullptr)) {
  BL_CHECK(!args_.names.empty());
}

SamplingParams ServedModel::sampling() const {
  SamplingParams sampling = args_.sampling;
  sampling.seed = random_seed();
  return sampling;
}

bool ServedModel::answers_to(const std::string& model) const {
  if (model.empty()) return true;
  return std::any_of(args_.names.begin(), args_.names.end(), [&](const std::string& name) {
    return name == "*" || http::equal_without_case(without_latest(name), without_latest(model));
  });
}

}  // namespace bl::server
