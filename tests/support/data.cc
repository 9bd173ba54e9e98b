#include "support/data.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/check.h"

namespace bl::test {

namespace fs = std::filesystem;

fs::path data_dir() { return fs::path(BL_SOURCE_DIR) / "tests" / "data"; }

fs::path unpacked(const char* name) {
  const fs::path work(BL_TEST_WORK_DIR);
  fs::create_directories(work);
  const fs::path archive = data_dir() / (std::string(name) + ".tar.xz");
  const fs::path folder = work / name;
  const fs::path stamp = work / (std::string(name) + ".stamp");
  // Test cases run as processes of their own: one unpacks, the others wait.
  const int lock = open((work / (std::string(name) + ".lock")).c_str(), O_CREAT | O_RDWR, 0644);
  BL_CHECK(lock >= 0 && flock(lock, LOCK_EX) == 0);
  if (!fs::exists(stamp) || fs::last_write_time(stamp) < fs::last_write_time(archive)) {
    fs::remove_all(folder);
    const std::string command = "tar -C '" + work.string() + "' -xJf '" + archive.string() +
                                "' && touch '" + stamp.string() + "'";
    BL_CHECK(std::system(command.c_str()) == 0);
  }
  close(lock);
  return folder;
}

fs::path shared_dir() {
  const char* variable = std::getenv("BITLOOM_DATA");
  const fs::path path =
      variable != nullptr ? fs::path(variable) : fs::path(BL_SOURCE_DIR).parent_path() / "shared";
  return fs::is_directory(path) ? path : fs::path();
}

fs::path scratch_dir(const char* name) {
  const fs::path path =
      fs::path(BL_TEST_WORK_DIR) / "scratch" / (std::string(name) + "-" + std::to_string(getpid()));
  fs::remove_all(path);
  fs::create_directories(path);
  return path;
}

}  // namespace bl::test
