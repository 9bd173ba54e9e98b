// Working folders of conversions, and the measurements in them: what is damaged, foreign or left
// over from a process that was killed.

#include "convert/job_folder.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "convert/measurement.h"
#include "format/safetensors_writer.h"
#include "support/data.h"
#include "support/error_of.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

class JobFolderTest : public testing::Test {
 protected:
  JobFolderTest() { fs::remove_all(work_); }

  void put(const fs::path& file, const std::string& text = "x") const {
    fs::create_directories((work_ / file).parent_path());
    write_file_atomically(work_ / file, text);
  }
  bool has(const fs::path& file) const { return fs::exists(work_ / file); }

  // A part without linears whose metadata is `metadata`.
  SafetensorsFile part_with(const SafetensorsMetadata& metadata) const {
    const fs::path path = scratch_dir("job-part") / "part.safetensors";
    SafetensorsWriter(path, {}, metadata).commit();
    return SafetensorsFile(path);
  }

  fs::path work_ = scratch_dir("job-folder") / "work";
  Json description_ = {{"version", 1}};
};

TEST_F(JobFolderTest, FilesOfAProcessThatWasKilledAreNoObstacle) {
  put(".calibration.json.tmp-17");
  check_job_folder(work_);
  JobFolder(work_, description_, false);
  RateFolder(JobFolder(work_, description_, false), 4.0, description_);
  put("4.0bpw/.part-00001.safetensors.tmp-18");
  put(".measurement.json.tmp-18");
  JobFolder(work_, description_, false);
  EXPECT_FALSE(has("4.0bpw/.part-00001.safetensors.tmp-18"));
  EXPECT_FALSE(has(".measurement.json.tmp-18"));
  EXPECT_TRUE(has("4.0bpw/rate.json"));
}

TEST_F(JobFolderTest, ARestartLeavesForeignFiles) {
  const JobFolder job(work_, description_, false);
  RateFolder(job, 4.0, description_);
  job.save(Json::object());
  put("4.0bpw/part-00000.safetensors");
  put("4.0bpw/notes.txt");
  put("notes.txt");
  put(".part-00003.safetensors.tmp-17");
  JobFolder(work_, {{"version", 2}}, true);
  EXPECT_EQ(read_json_file(work_ / "job.json"), Json({{"version", 2}}));
  for (const char* file : {"notes.txt", "4.0bpw/notes.txt"}) EXPECT_TRUE(has(file)) << file;
  for (const char* file : {"measurement.json", "4.0bpw/part-00000.safetensors", "4.0bpw/rate.json",
                           ".part-00003.safetensors.tmp-17"}) {
    EXPECT_FALSE(has(file)) << file;
  }
}

// Whatever else is in a folder stays as it is where there is no job.
TEST_F(JobFolderTest, AFolderWithoutAJobIsLeftAlone) {
  put("measurement.json");
  for (const bool restart : {false, true}) {
    error_of([&] { JobFolder(work_, description_, restart); }, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(has("measurement.json"));
  }
}

TEST_F(JobFolderTest, PartsKeepExpertsThatNoTokenChose) {
  const RateFolder rate(JobFolder(work_, description_, false), 4.0, description_);
  rate.save_part(0, {}, 5);
  EXPECT_EQ(part_unreached_experts(rate.open_part(0)), 5);
  EXPECT_TRUE(part_reports(rate.open_part(0)).empty());
}

TEST_F(JobFolderTest, DamagedPartsAreRefused) {
  for (const char* report : {"[{}]", "[1]", "[{\"key\": 3}]", "{\"key\": \"a\"}"}) {
    const SafetensorsFile part = part_with({{"report", report}, {"unreached_experts", "0"}});
    const std::string why = error_of([&] { part_reports(part); }, ErrorCode::kInvalidFile);
    EXPECT_NE(why.find("part.safetensors"), std::string::npos) << why;
  }
  for (const char* number : {"", "-1", "1.5", "many", "99999999999"}) {
    const SafetensorsFile part = part_with({{"report", "[]"}, {"unreached_experts", number}});
    error_of([&] { part_unreached_experts(part); }, ErrorCode::kInvalidFile);
  }
  error_of([&] { part_reports(part_with({})); }, ErrorCode::kInvalidFile);
}

// A measurement of one linear of 64 inputs.
Json measurement() {
  const Json curve{{"bits", 4}, {"group_size", 32}, {"errors", {0.5, 0.25}}};
  const Json linear{{"key", "a"},
                    {"in", 64},
                    {"out", 32},
                    {"sensitivity", 1.0},
                    {"curves", Json::array({curve})}};
  return {{"format", "bitloom-measurement-1"},
          {"tokens", 10},
          {"sensitivity_tokens", 5},
          {"linears", Json::array({linear})}};
}

TEST(Measurement, IsReadAsItWasWritten) {
  const ErrorMeasurement read = measurement_from_json(measurement(), "m.json");
  EXPECT_EQ(to_json(read), measurement());
}

// What is no group that a file can hold would divide by zero or end a conversion after hours.
TEST(Measurement, RefusesWhatNoFileCanHold) {
  const std::pair<const char*, Json> changes[] = {
      {"/linears/0/curves/0/group_size", 0},
      {"/linears/0/curves/0/group_size", -32},
      {"/linears/0/curves/0/group_size", 48},
      {"/linears/0/curves/0/group_size", 1 << 17},
      {"/linears/0/curves/0/group_size", std::int64_t{1} << 40},
      {"/linears/0/curves/0/bits", 7},
      {"/linears/0/curves/0/bits", 40},
      {"/linears/0/curves/0/bits", -4},
      {"/linears/0/curves/0/bits", (std::int64_t{1} << 32) + 4},
      {"/linears/0/curves/0/errors", Json::array({0.5})},
      {"/linears/0/curves/0/errors", Json::array({0.5, -1.0})},
      {"/linears/0/curves/0/errors", Json::array({0.5, nullptr})},
      {"/linears/0/curves", Json::array()},
      {"/linears/0/in", 65},
      {"/linears/0/in", -64},
      {"/linears/0/sensitivity", -1.0},
      {"/linears/0/key", 3},
      {"/linears", 3},
      {"/format", "other"},
  };
  for (const auto& [where, value] : changes) {
    Json json = measurement();
    json[Json::json_pointer(where)] = value;
    const std::string why =
        error_of([&] { measurement_from_json(json, "m.json"); }, ErrorCode::kInvalidFile);
    EXPECT_EQ(why.rfind("m.json", 0), 0u) << where << ": " << why;
  }
}

}  // namespace
}  // namespace bl::test
