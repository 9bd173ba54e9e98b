#include "server/server_state.h"

#include <fmt/format.h>

#include <random>
#include <utility>

namespace bl::server {
namespace {

constexpr std::size_t kMostWaiting = 4096;
constexpr std::chrono::seconds kQuiet{10};

}  // namespace

AdminFolders::AdminFolders(const FolderPaths& paths)
    : adapters(paths.adapters, FolderKind::kAdapters),
      templates(paths.templates, FolderKind::kTemplates),
      presets(paths.presets) {}

ServerState::ServerState()
    : folders_(std::make_unique<AdminFolders>(FolderPaths{})),
      requests_("requests", 2, kMostWaiting),
      answers_("answers", 2, kMostWaiting),
      slow_("slow-requests", 2, kMostWaiting) {}

void ServerState::configure(ModelOptions models, const FolderPaths& folders) {
  registry_.configure(std::move(models));
  folders_ = std::make_unique<AdminFolders>(folders);
}

// The registry's thread posts to the queues, and tasks of one queue post to another, so that all of
// them stop before any of them goes. Embeddings ask whether the server stops.
ServerState::~ServerState() {
  stopping_ = true;
  registry_.stop();
  for (WorkQueue* queue : {&requests_, &answers_, &slow_}) queue->stop();
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

std::shared_ptr<Generation> ServerState::generation(const std::string& id) const {
  const std::scoped_lock lock(mutex_);
  for (const auto& each : generations_) {
    std::shared_ptr<Generation> generation = each.lock();
    if (generation != nullptr && !generation->over() && generation->id() == id) return generation;
  }
  return nullptr;
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
  stopping_ = true;
  registry_.fail_waiting();
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
