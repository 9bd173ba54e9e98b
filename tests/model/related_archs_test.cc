#include "model/related_archs.h"

#include <gtest/gtest.h>

#include "model/arch_library.h"

namespace bl {
namespace {

std::string related(std::string_view unknown) {
  return related_archs(unknown, ArchLibrary().architectures());
}

TEST(RelatedArchs, NamesTheFamily) {
  EXPECT_TRUE(related("Qwen4ForCausalLM").starts_with("; known of its family are Qwen"))
      << related("Qwen4ForCausalLM");
  EXPECT_TRUE(related("Qwen3NextForCausalLM").starts_with("; known of its family are Qwen3"));
  EXPECT_EQ(related("InternLM3ForCausalLM"), "; known of its family is InternLM2ForCausalLM");
  EXPECT_EQ(related("LlamaForSequenceClassification"), "; known of its family is LlamaForCausalLM");
  EXPECT_NE(related("FalconH1ForCausalLM").find("FalconForCausalLM"), std::string::npos);
  EXPECT_NE(related("MistralLarge3ForCausalLM").find("MistralForCausalLM"), std::string::npos);
}

// Llava is no Llama, and three letters in common are no family.
TEST(RelatedArchs, NamesNoOthers) {
  EXPECT_EQ(related("LlavaForCausalLM"), "; known of its family is LlavaForConditionalGeneration");
  EXPECT_EQ(related("LlavaNextForConditionalGeneration").find("Llama"), std::string::npos);
  EXPECT_EQ(related("MambaForCausalLM"), "");
  EXPECT_EQ(related("DeepseekV3ForCausalLM"), "");
  EXPECT_EQ(related(""), "");
}

TEST(RelatedArchs, ForgivesATypingError) {
  EXPECT_NE(related("LlmaaForCausalLM").find("LlamaForCausalLM"), std::string::npos);
  EXPECT_EQ(related_archs("lama", {"llama", "qwen2"}), "; known of its family is llama");
  EXPECT_EQ(related("OPTForCausalLM"), "");  // not MPT
}

TEST(RelatedArchs, TakesAnyLength) {
  EXPECT_EQ(related(std::string(10'000'000, 'x')), "");
  EXPECT_TRUE(related("Qwen" + std::string(10'000'000, 'x')).starts_with("; known of its family"));
}

}  // namespace
}  // namespace bl
