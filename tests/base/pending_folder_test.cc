// Folders that appear as a whole.

#include "base/pending_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

class PendingFolderTest : public testing::Test {
 protected:
  PendingFolderTest() {
    std::string path = testing::TempDir() + "pending-XXXXXX";
    root_ = fs::canonical(mkdtemp(path.data()));
  }
  ~PendingFolderTest() override { fs::remove_all(root_); }

  static void write(const fs::path& file, const char* text) {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  static std::string read(const fs::path& file) {
    std::string text;
    std::getline(std::ifstream(file), text);
    return text;
  }

  fs::path root_;
};

TEST_F(PendingFolderTest, AppearsAsAWhole) {
  PendingFolder pending(root_ / "out", false);
  write(pending.path() / "config.json", "new");
  EXPECT_FALSE(fs::exists(root_ / "out"));
  pending.put_in_place();
  EXPECT_EQ(read(root_ / "out" / "config.json"), "new");
}

// What has come to its place in the meantime stays, unless it may be replaced.
TEST_F(PendingFolderTest, ReplacesOnlyWhatItMay) {
  for (const bool force : {false, true}) {
    PendingFolder pending(root_ / "out", force);
    write(pending.path() / "config.json", "new");
    write(root_ / "out" / "config.json", "old");
    if (force) {
      pending.put_in_place();
    } else {
      EXPECT_THROW(pending.put_in_place(), Error);
    }
    EXPECT_EQ(read(root_ / "out" / "config.json"), force ? "new" : "old");
  }
  PendingFolder pending(root_ / "out", true);
  write(root_ / "out" / "notes" / "own.txt", "precious");
  EXPECT_THROW(pending.put_in_place(), Error);
  EXPECT_EQ(read(root_ / "out" / "notes" / "own.txt"), "precious");
}

TEST_F(PendingFolderTest, ALinkIsFollowed) {
  fs::create_directory(root_ / "disk");
  fs::create_directory_symlink(root_ / "disk", root_ / "out");
  EXPECT_EQ(normalized_folder(root_ / "out"), root_ / "disk");
  EXPECT_EQ(normalized_folder(root_ / "disk" / ""), root_ / "disk");
}

}  // namespace
}  // namespace bl::test
