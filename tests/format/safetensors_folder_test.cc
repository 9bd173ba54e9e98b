#include "format/safetensors_folder.h"

#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "support/data.h"
#include "tensor_set.h"

namespace bl {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::file_of;
using test::raw;
using test::TensorSet;

class SafetensorsFolderTest : public testing::Test {
 protected:
  void write(const std::string& name, const TensorSet& set) {
    const auto bytes = file_of(set);
    write(name, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  void write(const std::string& name, const std::string& text) {
    write_file_atomically(folder_ / name, text);
  }
  static TensorSet one(const std::string& name, float value = 1) {
    return {{name, raw("F32", {1}, std::vector<float>{value})}};
  }
  fs::path folder_ = test::scratch_dir("safetensors-folder");
};

TEST_F(SafetensorsFolderTest, JoinsTheFilesOfAFolder) {
  write("one.safetensors", one("a", 1));
  write("two.safetensors", one("b", 2));
  write(".hidden.safetensors", std::string("broken"));
  write("notes.txt", std::string("text"));
  const SafetensorsFolder folder(folder_);
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(folder.read("b").view.as<float>()[0], 2.0f);
  EXPECT_EQ(folder.find("c"), nullptr);
  expect_error(ErrorCode::kNotFound, {"'c'"}, [&] { folder.read("c"); });
  folder.done_with("a");
  folder.done_with("c");
}

TEST_F(SafetensorsFolderTest, OpensOneFileByItsPath) {
  write("one.safetensors", one("a", 7));
  EXPECT_EQ(SafetensorsFolder(folder_ / "one.safetensors").read("a").view.as<float>()[0], 7.0f);
}

TEST_F(SafetensorsFolderTest, SaysWhatIsMissing) {
  expect_error(ErrorCode::kNotFound, {"no .safetensors file"}, [&] { SafetensorsFolder{folder_}; });
  write("pytorch_model.bin", std::string("pickle"));
  expect_error(ErrorCode::kNotFound, {"pickled", "convert"}, [&] { SafetensorsFolder{folder_}; });
  expect_error(ErrorCode::kNotFound, {"nowhere"}, [&] { SafetensorsFolder(folder_ / "nowhere"); });
}

TEST_F(SafetensorsFolderTest, ATensorInTwoFilesMustBeTheSameInBoth) {
  write("one.safetensors", one("a", 1));
  write("two.safetensors", one("a", 1));
  EXPECT_EQ(SafetensorsFolder(folder_).names(), std::vector<std::string>{"a"});
  EXPECT_EQ(SafetensorsFolder(folder_).read("a").view.as<float>()[0], 1.0f);
  write("two.safetensors", one("a", 2));
  expect_error(ErrorCode::kInvalidFile, {"'a'", "one.safetensors", "two.safetensors", "different"},
               [&] { SafetensorsFolder{folder_}; });
  write("two.safetensors", {{"a", raw("F32", {1, 1}, std::vector<float>{1})}});
  expect_error(ErrorCode::kInvalidFile, {"different"}, [&] { SafetensorsFolder{folder_}; });
}

TEST_F(SafetensorsFolderTest, FollowsATrueIndex) {
  write("model-1.safetensors", one("a"));
  write("model-2.safetensors", one("b"));
  write("other.safetensors", one("a", 9));  // not named: not opened
  write("broken.safetensors", std::string("broken"));
  write("model.safetensors.index.json", std::string(R"({"metadata":{"total_size":8},
                        "weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}})"));
  const SafetensorsFolder folder(folder_);
  EXPECT_EQ(folder.files().size(), 2u);
  EXPECT_EQ(folder.read("a").view.as<float>()[0], 1.0f);
}

// What transformers takes, too: the shards that the index names, and in them whatever they hold.
TEST_F(SafetensorsFolderTest, WhatShardsHoldCountsNotWhereTheIndexPlacesIt) {
  write("model-1.safetensors", one("a"));
  write("model-2.safetensors", {{"b", raw("F32", {1}, std::vector<float>{2})},
                                {"unlisted", raw("F32", {1}, std::vector<float>{3})}});
  write("model.safetensors.index.json",
        std::string(R"({"weight_map":{"a":"model-2.safetensors","b":"model-1.safetensors",
                                      "stripped":"model-1.safetensors"}})"));
  const SafetensorsFolder folder(folder_);
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a", "b", "unlisted"}));
  EXPECT_EQ(folder.read("b").view.as<float>()[0], 2.0f);
  EXPECT_EQ(folder.find("stripped"), nullptr);
  EXPECT_TRUE(folder.refused_names().empty());
}

TEST_F(SafetensorsFolderTest, AMissingShardMattersOnlyToThoseWhoNeedIt) {
  write("model-1.safetensors", one("a"));
  write("model.safetensors.index.json",
        std::string(R"({"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}})"));
  const SafetensorsFolder folder(folder_);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
  EXPECT_EQ(folder.refused_names(), std::vector<std::string>{"b"});
  expect_error(ErrorCode::kNotFound, {"'b'", "'model-2.safetensors'", "index.json", "fetch"},
               [&] { folder.find("b"); });
}

TEST_F(SafetensorsFolderTest, AWholeFileWinsOverAnIndexThatDoesNotNameIt) {
  write("model.safetensors", one("a", 1));
  write("model-1.safetensors", one("a", 2));
  write("consolidated.safetensors", one("a", 3));
  for (const char* text :
       {R"({"weight_map":{"a":"model-1.safetensors"}})", R"({"weight_map":{"a":"gone"}})", "{"}) {
    write("model.safetensors.index.json", std::string(text));
    const SafetensorsFolder folder(folder_);
    EXPECT_EQ(folder.files().size(), 1u);
    EXPECT_EQ(folder.read("a").view.as<float>()[0], 1.0f) << text;
    EXPECT_TRUE(folder.refused_names().empty());
  }
  fs::remove(folder_ / "model.safetensors.index.json");
  EXPECT_EQ(SafetensorsFolder(folder_).read("a").view.as<float>()[0], 1.0f);
  write("mtp.safetensors", one("b", 4));
  write("model.safetensors.index.json",
        std::string(R"({"weight_map":{"a":"model.safetensors","b":"mtp.safetensors"}})"));
  EXPECT_EQ(SafetensorsFolder(folder_).names(), (std::vector<std::string>{"a", "b"}));
}

TEST_F(SafetensorsFolderTest, AnIndexOfOtherFilesIsIgnored) {
  write("gptq_model-4bit.safetensors", one("a", 1));
  write("model.safetensors.index.json",
        std::string(R"({"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}})"));
  const SafetensorsFolder folder(folder_);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
  EXPECT_EQ(folder.find("b"), nullptr);
}

TEST_F(SafetensorsFolderTest, TheUsualIndexWinsOverOthers) {
  write("model-1.safetensors", one("a", 1));
  write("consolidated-1.safetensors", one("a", 2));
  write("model.safetensors.index.json",
        std::string(R"({"weight_map":{"a":"model-1.safetensors"}})"));
  write("consolidated.safetensors.index.json",
        std::string(R"({"weight_map":{"a":"consolidated-1.safetensors"}})"));
  EXPECT_EQ(SafetensorsFolder(folder_).read("a").view.as<float>()[0], 1.0f);
}

TEST_F(SafetensorsFolderTest, RejectsAnIndexThatIsNone) {
  write("model-1.safetensors", one("a"));
  const auto index = [&](const std::string& text) { write("model.safetensors.index.json", text); };
  for (const char* shard :
       {"\"../model-1.safetensors\"", "\"/etc/passwd\"", "\"\"", "3", "\"..\"", "\"a\\u0000b\""}) {
    index(std::string(R"({"weight_map":{"a":)") + shard + "}}");
    expect_error(ErrorCode::kInvalidFile, {"index.json", "'a'", "plain file name"},
                 [&] { SafetensorsFolder{folder_}; });
  }
  for (const char* text : {"", "[]", "{}", R"({"weight_map":[]})", "{"}) {
    index(text);
    expect_error(ErrorCode::kInvalidFile, {"index.json", "fetch it again"},
                 [&] { SafetensorsFolder{folder_}; });
  }
}

TEST_F(SafetensorsFolderTest, NeverBelievesTheIndexOfAnExl2Folder) {
  write("output-1.safetensors", one("m.q_weight"));
  write("output-2.safetensors", one("m.q_scale"));
  for (const char* text :
       {R"({"weight_map":{"m.weight":"model-00001-of-00002.safetensors"}})",  // stale
        R"({"weight_map":{"m.weight":"output-1.safetensors"}})", "{", "[]",
        R"({"weight_map":{"m.q_weight":"output-1.safetensors"}})"}) {  // true, but not all of it
    write("model.safetensors.index.json", std::string(text));
    EXPECT_EQ(SafetensorsFolder(folder_).names().size(), 2u) << text;
  }
}

}  // namespace
}  // namespace bl
