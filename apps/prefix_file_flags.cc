#include "prefix_file_flags.h"

#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "base/terminal.h"
#include "ops/kv_layout.h"

namespace bl {

void PrefixFileFlags::check() const {
  const std::filesystem::path folder = std::filesystem::path(to).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder)) {
    fail(ErrorCode::kIo, "--save-prefix: there is no folder {}", folder.string());
  }
}

void PrefixFileFlags::load(Engine& engine) const {
  if (from.empty()) return;
  const SavedPrefix loaded = engine.load_prefix(from);
  log_info("{}: {} tokens, {}", from, loaded.tokens,
           human_bytes(static_cast<double>(loaded.bytes)));
}

void PrefixFileFlags::check_text(const Request& request) const {
  if (to.empty() || request.prompt.size() >= kPageSlots) return;
  fail(ErrorCode::kInvalidArgument,
       "--save-prefix: the prompt has {} tokens, but only whole pages of {} are saved",
       request.prompt.size(), kPageSlots);
}

void PrefixFileFlags::save(Engine& engine, const Request& request) const {
  if (to.empty()) return;
  const SavedPrefix saved = engine.save_prefix(request, to);
  log_info("{}: {} of {} tokens saved, {}", to, saved.tokens, request.prompt.size(),
           human_bytes(static_cast<double>(saved.bytes)));
}

}  // namespace bl
