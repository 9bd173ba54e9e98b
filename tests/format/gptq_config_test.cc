#include "format/gptq_config.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "support/data.h"
#include "tensor_set.h"

namespace bl {
namespace {

using test::expect_error;

std::optional<GptqConfig> read(const char* quantization) {
  return read_gptq_config(
      {}, parse_json(std::string(R"({"quantization_config":)") + quantization + "}", "test"));
}

TEST(GptqConfig, ReadsBothGenerationsOfKeys) {
  const auto old = read(R"({"w_bit": 3, "q_group_size": 64, "desc_act": true, "sym": false})");
  ASSERT_TRUE(old);
  EXPECT_EQ(old->bits, 3);
  EXPECT_EQ(old->group_size, 64);
  EXPECT_EQ(old->symmetric, false);
  EXPECT_TRUE(old->act_order);
  EXPECT_FALSE(old->v2);
  const auto recent = read(R"({"method": "gptq", "format": "gptq_v2", "bits": 4,
                               "group_size": -1, "dynamic": {"-:.*": {}}, "pack_dtype": "int32"})");
  ASSERT_TRUE(recent);
  EXPECT_TRUE(recent->v2);
  EXPECT_TRUE(recent->per_module);
  EXPECT_EQ(recent->group_size, -1);
  EXPECT_FALSE(recent->symmetric.has_value());
}

TEST(GptqConfig, ReadsAutoRoundInItsLayout) {
  const auto v2 = [](const std::string& keys) {
    const auto config =
        read((R"({"bits": 4, "group_size": 128, "sym": false, )" + keys + "}").c_str());
    return config->v2;
  };
  for (const char* method : {"auto-round", "auto_round", "intel/auto-round"}) {
    const std::string key = std::string(R"("quant_method": ")") + method + "\"";
    EXPECT_FALSE(v2(key));
    EXPECT_FALSE(v2(key + R"(, "packing_format": "auto_round:auto_gptq")"));
    EXPECT_FALSE(v2(key + R"(, "packing_format": "auto_round:gptq")"));
    EXPECT_FALSE(v2(key + R"(, "backend": "gptq:exllamav2")"));
    EXPECT_FALSE(v2(key + R"(, "backend": "auto")"));
    EXPECT_TRUE(v2(key + R"(, "packing_format": "auto_round")"));
    EXPECT_TRUE(v2(key + R"(, "packing_format": "auto_round:gptqmodel", "backend": "auto")"));
    EXPECT_TRUE(v2(key + R"(, "backend": "auto_round:exllamav2")"));
  }
  const auto mixed = read(R"({"quant_method": "auto-round", "bits": 4, "data_type": "int",
      "act_bits": 16, "block_name_to_quantize": "model.layers", "quant_lm_head": true,
      "extra_config": {"lm_head": {"bits": 8}, "model.layers.0.mlp.gate": {"bits": 16}}})");
  EXPECT_TRUE(mixed->per_module);
  EXPECT_FALSE(
      read(R"({"quant_method": "auto-round", "bits": 4, "extra_config": {}})")->per_module);
}

TEST(GptqConfig, RefusesOtherPackingsOfAutoRound) {
  const auto refused = [](const std::string& keys, const char* part) {
    expect_error(ErrorCode::kUnsupported, {part}, [&] {
      read((R"({"quant_method": "auto-round", "bits": 4, )" + keys + "}").c_str());
    });
  };
  for (const char* packing : {"auto_round:auto_awq", "auto_round:awq", "auto_round:llm_compressor",
                              "auto_round:nv_fp4", "auto_round:", "llm_compressor"}) {
    const std::string value = std::string("\"") + packing + "\"";
    refused("\"packing_format\": " + value, packing);
    refused("\"packing_format\": " + value, "auto_gptq");
    refused("\"backend\": " + value, packing);
  }
  refused(R"("data_type": "mx_fp")", "'mx_fp'");
  refused(R"("data_type": "int_asym_dq")", "'int_asym_dq'");
  refused(R"("act_bits": 8)", "8 bits (act_bits)");
  refused(R"("spinquant_config": {"r1": true})", "spinquant_config");
}

TEST(GptqConfig, IsEmptyForWhatIsNotGptq) {
  EXPECT_FALSE(read_gptq_config({}, parse_json("{}", "test")));
  EXPECT_FALSE(read_gptq_config({}, parse_json(R"({"quantization_config": null})", "test")));
  EXPECT_FALSE(read(R"({"quant_method": "exl2", "bits": 4.0, "head_bits": 6})"));
}

TEST(GptqConfig, WritersThatCarryAreKnownByVersion) {
  const auto carries = [](const char* quantizer) {
    return read((std::string(R"({"bits": 4, "sym": false, "meta": {"quantizer": )") + quantizer +
                 "}}")
                    .c_str())
        ->carries;
  };
  EXPECT_TRUE(carries(R"(["gptqmodel:1.4.5"])"));
  EXPECT_TRUE(carries(R"("gptqmodel:0.9.0")"));
  EXPECT_TRUE(carries(R"(["other:1", "gptqmodel:12.0"])"));
  EXPECT_FALSE(carries(R"(["gptqmodel:0.8.1"])"));
  EXPECT_FALSE(carries(R"(["autogptq:1.4.5"])"));
  EXPECT_FALSE(carries(R"(["gptqmodel:x"])"));
  EXPECT_FALSE(carries("[1, null]"));
  EXPECT_FALSE(
      read(R"({"bits": 4, "sym": true, "meta": {"quantizer": ["gptqmodel:1.4.5"]}})")->carries);
}

TEST(GptqConfig, RefusesLookAlikesByName) {
  for (const char* name : {"awq", "marlin", "fp8", "exl3", "compressed-tensors", "bitsandbytes"}) {
    expect_error(ErrorCode::kUnsupported, {std::string("'") + name + "'", "config.json"},
                 [&] { read((std::string(R"({"quant_method": ")") + name + "\"}").c_str()); });
  }
  for (const char* name : {"marlin", "bitblas", "gptq_p", "qqq"}) {
    expect_error(ErrorCode::kUnsupported, {std::string("'") + name + "'"}, [&] {
      read((std::string(R"({"bits": 4, "checkpoint_format": ")") + name + "\"}").c_str());
    });
  }
  expect_error(ErrorCode::kUnsupported, {"marlin"},
               [] { read(R"({"bits": 4, "is_marlin_format": true})"); });
  expect_error(ErrorCode::kUnsupported, {"'int16'", "int32"},
               [] { read(R"({"bits": 4, "pack_dtype": "int16"})"); });
  expect_error(ErrorCode::kUnsupported, {"6-bit", "planar"}, [] { read(R"({"bits": 6})"); });
}

TEST(GptqConfig, RejectsValuesOfWrongTypeOrRange) {
  expect_error(ErrorCode::kInvalidFile, {"quantization_config", "object"}, [] { read("[1]"); });
  expect_error(ErrorCode::kInvalidFile, {"\"bits\"", "whole number", "string"},
               [] { read(R"({"bits": "4"})"); });
  expect_error(ErrorCode::kInvalidFile, {"\"bits\"", "whole number"},
               [] { read(R"({"bits": 4.5})"); });
  expect_error(ErrorCode::kInvalidFile, {"bits is 1"}, [] { read(R"({"bits": 1})"); });
  expect_error(ErrorCode::kInvalidFile, {"bits is"},
               [] { read(R"({"bits": 18446744073709551615})"); });
  expect_error(ErrorCode::kInvalidFile, {"group_size is 0"}, [] { read(R"({"group_size": 0})"); });
  expect_error(ErrorCode::kInvalidFile, {"group_size is -2"},
               [] { read(R"({"group_size": -2})"); });
  expect_error(ErrorCode::kInvalidFile, {"\"sym\"", "true or false"},
               [] { read(R"({"sym": 1})"); });
  expect_error(ErrorCode::kInvalidFile, {"\"quant_method\"", "string"},
               [] { read(R"({"quant_method": 4})"); });
}

TEST(GptqConfig, FallsBackToTheFileOfItsOwn) {
  const auto folder = test::scratch_dir("gptq-config");
  write_file_atomically(folder / "quantize_config.json",
                        R"({"bits": 8, "group_size": 128, "desc_act": false})");
  const Json plain = parse_json("{}", "test");
  EXPECT_EQ(read_gptq_config(folder, plain)->bits, 8);
  // Both: config.json counts.
  const Json both = parse_json(R"({"quantization_config": {"bits": 4}})", "test");
  EXPECT_EQ(read_gptq_config(folder, both)->bits, 4);
  write_file_atomically(folder / "quantize_config.json", "[]");
  expect_error(ErrorCode::kInvalidFile, {"quantize_config.json", "object"},
               [&] { read_gptq_config(folder, plain); });
}

}  // namespace
}  // namespace bl
