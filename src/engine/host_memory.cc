#include "engine/host_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace bl {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();

// Reads a file with one number; nothing for "max" or where there is no file.
std::optional<std::uint64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// Reads the number behind `key` in a file of "key number" lines.
std::optional<std::uint64_t> read_keyed(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  std::string line_key;
  std::uint64_t value = 0;
  std::string rest;
  while (file >> line_key >> value) {
    if (line_key == key) return value;
    std::getline(file, rest);
  }
  return std::nullopt;
}

std::uint64_t left_of(std::optional<std::uint64_t> limit, std::optional<std::uint64_t> used,
                      std::uint64_t reclaimable) {
  if (!limit || !used) return kUnknown;
  const std::uint64_t held = *used - std::min(*used, reclaimable);
  return *limit - std::min(*limit, held);
}

std::uint64_t cgroup_v2_left(const fs::path& group) {
  const std::uint64_t cache = read_keyed(group / "memory.stat", "inactive_file").value_or(0);
  return left_of(read_number(group / "memory.max"), read_number(group / "memory.current"), cache);
}

std::uint64_t cgroup_v1_left(const fs::path& group) {
  const std::uint64_t cache = read_keyed(group / "memory.stat", "total_inactive_file").value_or(0);
  return left_of(read_number(group / "memory.limit_in_bytes"),
                 read_number(group / "memory.usage_in_bytes"), cache);
}

// The minimum of what the cgroup at `path` under `root` and those above it leave.
template <class Left>
std::uint64_t least_left(const fs::path& root, fs::path path, Left left) {
  std::uint64_t least = left(root);
  while (path.has_relative_path()) {
    least = std::min(least, left(root / path.relative_path()));
    path = path.parent_path();
  }
  return least;
}

std::uint64_t cgroup_left() {
  std::uint64_t least = kUnknown;
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path path = line.substr(second + 1);
    if (controllers.empty()) {
      least = std::min(least, least_left("/sys/fs/cgroup", path, cgroup_v2_left));
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      least = std::min(least, least_left("/sys/fs/cgroup/memory", path, cgroup_v1_left));
    }
  }
  return least;
}

}  // namespace

std::uint64_t available_host_memory() {
  std::uint64_t available = kUnknown;
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::uint64_t value = 0;
  std::string unit;
  while (file >> key >> value) {
    std::getline(file, unit);
    if (key == "MemAvailable:") available = value * 1024;
  }
  return std::min(available, cgroup_left());
}

std::uint64_t peak_host_memory() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace bl
