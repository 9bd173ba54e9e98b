#include "cache/prefix_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <random>

#include "base/file.h"
#include "support/data.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPageBytes = 1000;

class PrefixFile : public testing::Test {
 protected:
  PrefixFile() : folder_(test::scratch_dir("prefix-file")), path_(folder_ / "text.prefix") {
    text_.kind.model = {11, 12};
    text_.kind.rope = "theta 10000";
    text_.kind.order = "rows";
    text_.kind.type = CacheType::kQ6;
    text_.kind.layers = {{3, 64, 64}, {1, 96, 128}};
    text_.kind.page_bytes = kPageBytes;
    text_.salt = std::string("0:\xff\0mine", 8);
    for (std::int32_t i = 0; i < 3 * kPageSlots; ++i) text_.ids.push_back(i * 7 % 1000);
  }
  static std::vector<std::byte> page(unsigned number) {
    std::mt19937 random(number);
    std::vector<std::byte> bytes(kPageBytes);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
  }
  void write() {
    PrefixWriter writer(path_, text_);
    for (unsigned i = 0; i < 3; ++i) writer.write_page(page(i));
    writer.commit();
    EXPECT_EQ(writer.bytes(), fs::file_size(path_));
  }
  std::string bytes() { return read_file(path_); }
  void put(std::string_view bytes) { std::ofstream(path_, std::ios::binary) << bytes; }
  // Reads all of it; the message of the error, or nothing.
  std::string error() {
    try {
      PrefixReader reader(path_);
      reader.check_kind(text_.kind);
      std::vector<std::byte> bytes(kPageBytes);
      for (unsigned i = 0; i < 3; ++i) reader.read_page(bytes);
      return {};
    } catch (const Error& error) {
      code_ = error.code();
      return error.what();
    }
  }
  void expect_error(std::string_view part, ErrorCode code = ErrorCode::kInvalidFile) {
    const std::string message = error();
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(code_, code) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  // A header of other numbers with the right hash.
  template <class T>
  void expect_number_refused(std::size_t at, T value, std::string_view part) {
    std::string all = bytes();
    std::memcpy(all.data() + at, &value, sizeof value);
    std::uint32_t header = 0;
    std::memcpy(&header, all.data() + 12, sizeof header);
    if (header >= 32 && header <= all.size()) {
      SipHash hash;
      hash.update(std::string_view(all).substr(32, header - 32));
      const Hash128 sum = hash.finish();
      std::memcpy(all.data() + 16, &sum, sizeof sum);
    }
    const std::string before = bytes();
    put(all);
    expect_error(part);
    put(before);
  }

  fs::path folder_;
  fs::path path_;
  PrefixText text_;
  ErrorCode code_ = ErrorCode::kCancelled;
};

TEST_F(PrefixFile, ReadsWhatWasWritten) {
  write();
  PrefixReader reader(path_);
  EXPECT_EQ(reader.text().kind, text_.kind);
  EXPECT_EQ(reader.text().salt, text_.salt);
  EXPECT_EQ(reader.text().ids, text_.ids);
  EXPECT_NO_THROW(reader.check_kind(text_.kind));
  for (unsigned i = 0; i < 3; ++i) {
    std::vector<std::byte> bytes(kPageBytes);
    reader.read_page(bytes);
    EXPECT_EQ(bytes, page(i));
  }
}

TEST_F(PrefixFile, EveryCacheTypeComesBack) {
  for (const CacheTypes type : kAllCacheTypes) {
    text_.kind.type = type;
    write();
    EXPECT_EQ(PrefixReader(path_).text().kind.type, type) << name_of(type);
  }
}

// Files that were written before a type was added keep what their number means.
TEST_F(PrefixFile, TypesHaveTheNumbersOfTheTable) {
  const std::vector<std::pair<std::string_view, std::uint32_t>> table{{"fp32", 0},
                                                                      {"fp16", 1},
                                                                      {"fp8", 2},
                                                                      {"q8", 3},
                                                                      {"q6", 4},
                                                                      {"q4", 5},
                                                                      {"q7", 6},
                                                                      {"q5", 7},
                                                                      {"q3", 8},
                                                                      {"q2", 9},
                                                                      {"q8,q6", 3 + 256 * 5},
                                                                      {"q6,q4", 4 + 256 * 6},
                                                                      {"q2,q7", 9 + 256 * 7}};
  for (const auto& [name, number] : table) {
    text_.kind.type = parse_cache_types(name).types.value();
    write();
    std::uint32_t written = 0;
    std::memcpy(&written, bytes().data() + 48, sizeof written);
    EXPECT_EQ(written, number) << name;
  }
}

TEST_F(PrefixFile, EveryTruncationIsAnError) {
  write();
  const std::string all = bytes();
  for (std::size_t size = 0; size < all.size(); size += size < 200 ? 1 : 37) {
    put(all.substr(0, size));
    expect_error("");
    ASSERT_NE(error(), "") << size;
  }
  put(all + "x");
  expect_error("the file was truncated or extended");
}

TEST_F(PrefixFile, EveryChangedBitIsAnError) {
  write();
  const std::string all = bytes();
  std::mt19937 random(1);
  for (std::size_t i = 0; i < all.size(); i += i < 200 ? 1 : 29) {
    std::string changed = all;
    changed[i] = static_cast<char>(changed[i] ^ (1 << random() % 8));
    put(changed);
    ASSERT_NE(error(), "") << i;
  }
}

TEST_F(PrefixFile, PagesBelongToTheirPlaceAndTheirFile) {
  write();
  std::string all = bytes();
  const std::size_t each = kPageBytes + sizeof(Hash128);
  const std::size_t first = all.size() - 3 * each;
  std::string swapped = all;
  std::swap_ranges(swapped.begin() + static_cast<std::ptrdiff_t>(first),
                   swapped.begin() + static_cast<std::ptrdiff_t>(first + each),
                   swapped.begin() + static_cast<std::ptrdiff_t>(first + each));
  put(swapped);
  expect_error("page 1 of 3 is damaged");
  // The pages of this text behind the header of another one.
  text_.ids[5] = 3;
  write();
  put(bytes().substr(0, first) + all.substr(first));
  expect_error("page 1 of 3 is damaged");
}

TEST_F(PrefixFile, CountsThatCannotBe) {
  write();
  const std::uint64_t size = fs::file_size(path_);
  expect_number_refused(12, std::uint32_t{0}, "a header of 0 bytes");
  expect_number_refused(12, ~std::uint32_t{0}, "a header of 4294967295 bytes");
  expect_number_refused(48, std::uint32_t{10}, "cache type 10");
  expect_number_refused(48, std::uint32_t{3 | 4 << 8}, "cache type 1027");  // twice the same
  expect_number_refused(48, std::uint32_t{3 | 11 << 8}, "cache type 2819");
  expect_number_refused(48, std::uint32_t{1 | 6 << 8}, "cache type 1537");  // fp16,q4
  expect_number_refused(48, std::uint32_t{3 | 3 << 8}, "cache type 771");   // q8,fp8
  expect_number_refused(48, std::uint32_t{3 | 6 << 8 | 1 << 20}, "cache type");
  expect_number_refused(52, std::uint32_t{16}, "pages of 16 tokens");
  expect_number_refused(56, std::uint64_t{0}, "0 tokens");
  expect_number_refused(56, std::uint64_t{255}, "255 tokens");
  expect_number_refused(56, ~std::uint64_t{0} / 256 * 256, "tokens, but a multiple");
  expect_number_refused(56, std::uint64_t{1} << 26, "a header of");
  expect_number_refused(64, std::uint64_t{0}, "3 pages of 0 bytes");
  expect_number_refused(64, ~std::uint64_t{0}, "bytes do not fit 3 pages");
  expect_number_refused(64, size, "bytes do not fit 3 pages");
  expect_number_refused(72, ~std::uint32_t{0}, "4294967295 layers");
  expect_number_refused(72, std::uint32_t{1} << 14, "a header of");
  for (const std::size_t at : {76, 80, 84}) {
    expect_number_refused(at, ~std::uint32_t{0}, "texts of");
    expect_number_refused(at, std::uint32_t{1} << 16, "a header of");
  }
}

TEST_F(PrefixFile, OtherFilesAndVersions) {
  expect_error("cannot open", ErrorCode::kNotFound);
  put("");
  expect_error("too few");
  put(std::string(1000, 'x'));
  expect_error("not a saved prefix");
  write();
  std::string all = bytes();
  all[8] = 2;
  put(all);
  expect_error("version 2 of the format", ErrorCode::kUnsupported);
  fs::remove(path_);
  fs::create_directory(path_);
  expect_error("not a regular file");
  fs::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  expect_error("not a regular file");  // and does not wait for a writer
}

TEST_F(PrefixFile, SaysWhatIsNotAsHere) {
  write();
  const PageKind own = text_.kind;
  const auto refused = [&](std::string_view part) {
    expect_error(part, ErrorCode::kInvalidArgument);
    text_.kind = own;
  };
  text_.kind.model.low = 0;
  refused("saved by model");
  text_.kind.rope = "theta 1";
  refused("saved with the rotation theta 10000, but this session has theta 1");
  text_.kind.type = CacheType::kF16;
  refused("saved with --cache q6, but this session has fp16");
  text_.kind.type = {CacheType::kQ6, CacheType::kQ4};
  refused("saved with --cache q6, but this session has q6,q4");
  text_.kind.order = "columns";
  refused("saved by a backend with pages of rows, but this session has columns");
  text_.kind.layers.pop_back();
  refused("saved with pages of 2 layers");
}

TEST_F(PrefixFile, AFullDiskLeavesNothingBehind) {
  // The limit on the size of a file stands for a disk that is full.
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit old {};
  getrlimit(RLIMIT_FSIZE, &old);
  struct rlimit small = old;
  small.rlim_cur = 5000;
  write();
  const std::string whole = bytes();
  text_.ids[0] = 77;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  try {
    write();
    ADD_FAILURE() << "written";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_NE(std::string(error.what()).find("cannot write"), std::string::npos) << error.what();
  }
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(bytes(), whole);  // the older file is untouched
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace bl
