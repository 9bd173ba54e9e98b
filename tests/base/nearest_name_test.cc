#include "base/nearest_name.h"

#include <gtest/gtest.h>

namespace bl {
namespace {

TEST(NearestName, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("cup", "cpu"), 1u);  // one exchange
  EXPECT_EQ(edit_distance("abcd", "badc"), 2u);
  EXPECT_EQ(edit_distance("CUDA", "cuda"), 0u);
  // No substring is edited twice: that would be 2, by way of "ac".
  EXPECT_EQ(edit_distance("ca", "abc"), 3u);
}

TEST(NearestName, FindsWhatWasMeant) {
  const std::vector<std::string> names{"--temperature", "--top-k",    "--top-p",
                                       "--max-tokens",  "--max-temp", "-n"};
  EXPECT_EQ(nearest_name("--temprature", names), "--temperature");
  EXPECT_EQ(nearest_name("--tempreature", names), "--temperature");
  EXPECT_EQ(nearest_name("--topk", names), "--top-k");
  EXPECT_EQ(nearest_name("--Top-P", names), "--top-p");
  EXPECT_EQ(nearest_name("--temp", names), "--temperature");
  EXPECT_EQ(nearest_name("--max-tok", names), "--max-tokens");
}

TEST(NearestName, SaysNothingWhereNothingIsNear) {
  const std::vector<std::string> names{"--temperature", "-n", "-m", "run"};
  EXPECT_EQ(nearest_name("--zebra-crossing", names), "");
  EXPECT_EQ(nearest_name("-z", names), "");
  EXPECT_EQ(nearest_name("--", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name("--te", names), "");
  EXPECT_EQ(nearest_name("run" + std::string(10'000'000, 'n'), names), "");
}

TEST(NearestName, EndsAMessage) {
  EXPECT_EQ(did_you_mean("rum", {"run"}), "; did you mean run?");
  EXPECT_EQ(did_you_mean("serve", {"run"}), "");
}

}  // namespace
}  // namespace bl
