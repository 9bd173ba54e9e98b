#include "server/server_state.h"

#include <fmt/format.h>

#include <random>
#include <utility>

#include "server/error_shape.h"

namespace bl::server {
namespace {

constexpr std::size_t kMostWaiting = 4096;
constexpr std::chrono::seconds kQuiet{10};

}  // namespace

ServerState::ServerState() : requests_(2, kMostWaiting), answers_(2, kMostWaiting) {}

std::shared_ptr<ServedModel> ServerState::model(const std::string& name) const {
  const std::scoped_lock lock(mutex_);
  for (const auto& model : models_) {
    if (model->answers_to(name)) return model;
  }
  if (models_.empty()) throw HttpError(503, "model_not_loaded", "no model is loaded");
  throw HttpError(404, "model_not_found",
                  fmt::format("the model '{}' does not exist here; /v1/models lists those that do",
                              name.substr(0, 200)));
}

std::vector<std::shared_ptr<ServedModel>> ServerState::models() const {
  const std::scoped_lock lock(mutex_);
  return models_;
}

void ServerState::set_model(std::shared_ptr<ServedModel> model) {
  const std::scoped_lock lock(mutex_);
  models_ = {std::move(model)};
}

std::string ServerState::new_id(std::string_view prefix) {
  thread_local std::mt19937_64 random{[] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }()};
  return fmt::format("{}{:016x}{:016x}", prefix, random(), random());
}

void ServerState::run(std::shared_ptr<Generation> generation) {
  {
    const std::scoped_lock lock(mutex_);
    std::erase_if(generations_, [](const auto& each) {
      const auto known = each.lock();
      return known == nullptr || known->over();
    });
    generations_.push_back(generation);
  }
  generation->start();
}

void ServerState::tick() {
  std::vector<std::weak_ptr<Generation>> all;
  {
    const std::scoped_lock lock(mutex_);
    all = generations_;
  }
  for (const auto& each : all) {
    if (const auto generation = each.lock()) generation->tick(kQuiet);
  }
}

void ServerState::cancel_all() {
  std::vector<std::weak_ptr<Generation>> all;
  {
    const std::scoped_lock lock(mutex_);
    all = generations_;
  }
  for (const auto& each : all) {
    if (const auto generation = each.lock()) generation->cancel();
  }
}

std::size_t ServerState::running() const {
  const std::scoped_lock lock(mutex_);
  std::size_t count = 0;
  for (const auto& each : generations_) {
    const auto generation = each.lock();
    if (generation != nullptr && !generation->over()) ++count;
  }
  return count;
}

}  // namespace bl::server
