#include "engine/model_identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <span>

#include "base/error.h"
#include "format/gguf_split.h"
#include "model/model_path.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

// These parts of each file are hashed: its beginning, and samples at equal distances.
constexpr std::uint64_t kHeadBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kSamples = 4096;
constexpr std::uint64_t kSampleBytes = 64;

void add_file(std::ifstream& in, std::uint64_t size, SipHash& hash) {
  std::string bytes;
  const auto add = [&](std::uint64_t offset, std::uint64_t count) {
    bytes.resize(static_cast<std::size_t>(std::min(count, size - offset)));
    in.seekg(static_cast<std::streamoff>(offset));
    in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    hash.update(bytes);
  };
  hash.update(size);
  add(0, kHeadBytes);
  const std::uint64_t step = std::max(size / kSamples, kSampleBytes);
  for (std::uint64_t offset = kHeadBytes; offset < size; offset += step) add(offset, kSampleBytes);
}

}  // namespace

ModelIdentity::ModelIdentity(const OpenedModel& model, std::span<const std::int32_t> order,
                             const OpenedModel* draft, std::string_view arch)
    : config_(json_text(model.files.config)) {
  config_ += fmt::format("\n{}", arch);
  for (const std::int32_t layer : order) config_ += fmt::format(" {}", layer);
  add_files(model.weights.empty() ? model.path : model.weights);
  for (const WeightOverride& one : model.overrides) {
    config_ += fmt::format("\n{} {}", files_.size(), one.pattern);
    add_files(one.model);
  }
  if (draft == nullptr) return;
  config_ += fmt::format("\n{} draft {}", files_.size(), json_text(draft->files.config));
  add_files(draft->weights.empty() ? draft->path : draft->weights);
}

void ModelIdentity::add_files(const fs::path& path) {
  const std::size_t before = files_.size();
  const auto add = [&](const fs::path& file) {
    files_.push_back({file, fs::file_size(file), fs::last_write_time(file)});
  };
  std::error_code error;
  if (!fs::exists(path, error)) return;  // a random model
  const ModelPath from = resolve_model_path(path);
  if (!from.gguf.empty()) {
    for (const fs::path& shard : gguf_shards(from.gguf)) add(shard);
    return;
  }
  if (!from.weights.empty()) return add(from.weights);
  for (const fs::directory_entry& entry : fs::directory_iterator(from.folder)) {
    if (entry.path().extension() == ".safetensors" && entry.is_regular_file(error)) {
      add(entry.path());
    }
  }
  std::sort(files_.begin() + static_cast<std::ptrdiff_t>(before), files_.end(),
            [](const File& a, const File& b) { return a.path.filename() < b.path.filename(); });
}

Hash128 ModelIdentity::hash() const {
  SipHash hash;
  hash.update(config_.size());
  hash.update(config_);
  for (const File& file : files_) {
    std::ifstream in(file.path, std::ios::binary);
    std::error_code error;
    const bool same = fs::file_size(file.path, error) == file.size && !error &&
                      fs::last_write_time(file.path, error) == file.changed && !error;
    if (!same) {
      fail(ErrorCode::kInvalidFile,
           "{} has changed since the model was loaded: its prefixes cannot be saved or loaded",
           file.path.string());
    }
    add_file(in, file.size, hash);
    if (!in) fail(ErrorCode::kIo, "cannot read {}", file.path.string());
  }
  return hash.finish();
}

std::string rope_identity(const std::vector<RopeSpec>& ropes) {
  SipHash hash;
  const auto add = [&](double value) { hash.update(std::as_bytes(std::span(&value, 1))); };
  for (const RopeSpec& rope : ropes) {
    for (const double value : {rope.theta, rope.factor, rope.low_freq_factor, rope.high_freq_factor,
                               rope.beta_fast, rope.beta_slow, rope.attention_factor,
                               rope.proportion, rope.linear_scale, rope.query_beta}) {
      add(value);
    }
    for (const std::int64_t value :
         {static_cast<std::int64_t>(rope.kind), static_cast<std::int64_t>(rope.style),
          rope.head_dim, rope.rotated, rope.max_positions, rope.original_positions,
          std::int64_t{rope.truncate}, std::int64_t{rope.reversed}, rope.query_steps}) {
      hash.update(static_cast<std::uint64_t>(value));
    }
    for (const auto* factors : {&rope.short_factor, &rope.long_factor}) {
      hash.update(factors->size());
      for (const double value : *factors) add(value);
    }
  }
  if (ropes.empty()) return "none";
  return fmt::format("theta {}, factor {}, scale {} ({})", ropes.front().theta,
                     ropes.front().factor, ropes.front().linear_scale,
                     hash.finish().hex().substr(0, 16));
}

}  // namespace bl
