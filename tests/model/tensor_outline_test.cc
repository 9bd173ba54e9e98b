// The tensors that a description promises are those of the checkpoints that others made.

#include "model/tensor_outline.h"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <string>

#include "model/arch_library.h"
#include "model/golden.h"
#include "model/model_files.h"
#include "model/renamed_source.h"

namespace bl::test {
namespace {

using Shapes = std::map<std::string, Shape>;

// [out, in] as a plain file has it.
Shape stored_shape(const OutlinedLinear& linear) {
  return linear.transposed ? Shape{linear.in, linear.out} : Shape{linear.out, linear.in};
}

Shapes shapes_of(const TensorOutline& outline) {
  Shapes shapes;
  const auto add = [&](const std::string& name, const Shape& shape) {
    EXPECT_TRUE(shapes.emplace(name, shape).second) << name << " is listed twice";
  };
  for (const OutlinedTable& table : outline.tables) add(table.name, {table.rows, table.width});
  for (const OutlinedLinear& linear : outline.linears) {
    add(linear.key + ".weight", stored_shape(linear));
    if (linear.bias) add(linear.key + ".bias", {linear.out});
  }
  for (const OutlinedNorm& norm : outline.norms) {
    add(norm.weight, {norm.width});
    if (!norm.bias.empty()) add(norm.bias, {norm.width});
  }
  for (const OutlinedVector& vector : outline.vectors) add(vector.name, {vector.size});
  return shapes;
}

// Routed experts of plain files are in stacks that loading takes apart; those of an outline are
// modules of their own.
bool is_routed_expert(const std::string& name) {
  static const std::regex kExperts(
      R"(.*\.experts\..*|.*block_sparse_moe\.(in|out)put_linear\..*|.*\.moe\.(gate|up|down)_proj\..*)");
  return std::regex_match(name, kExperts) && name.find("correction_bias") == name.npos;
}

// Under the first of the names that the description allows.
std::string first_name(std::string name, const BlockArch& block) {
  for (const auto& norm : {block.attention_norm, block.feed_forward_norm}) {
    if (!norm) continue;
    for (const std::string& other : norm->name) {
      const std::size_t at = name.find("." + other + ".");
      if (at != name.npos) name.replace(at + 1, other.size(), norm->name.front());
    }
  }
  return name;
}

// A vector may be stored with a dimension in front, once for all heads or once a head.
bool same_shape(const Shape& outlined, const Shape& stored) {
  return outlined == stored ||
         (outlined.rank() == 1 && stored.rank() == 2 && stored[1] == outlined[0]);
}

class Outlines : public testing::TestWithParam<std::string> {};

TEST_P(Outlines, ListWhatCheckpointsHold) {
  const ModelFiles files = open_model_folder(model_folder(GetParam()));
  const HfConfig config(files.config, files.config_file);
  const ModelSpec spec = build_model_spec(ArchLibrary(), config, {});
  const RenamedSource source(*files.source, CheckpointNames(*spec.arch));
  Shapes outlined = shapes_of(outline_tensors(spec, config, false));
  for (const std::string& name : source.names()) {
    const auto& [dtype, shape, file] = *source.find(name);
    // What the model says is in the folder too. Parameters of an activation have defaults.
    if (file.ends_with("golden.safetensors") || name.find(".act_fn.") != name.npos) continue;
    if (is_routed_expert(name)) continue;
    const auto at = outlined.find(first_name(name, spec.arch->block));
    if (at == outlined.end()) {
      ADD_FAILURE() << name << " " << shape.to_string() << " is not listed";
      continue;
    }
    EXPECT_TRUE(same_shape(at->second, shape))
        << name << ": " << shape.to_string() << ", listed as " << at->second.to_string();
    outlined.erase(at);
  }
  for (const auto& [name, shape] : outlined) {
    EXPECT_TRUE(is_routed_expert(name)) << name << " " << shape.to_string() << " is in no file";
  }
}

INSTANTIATE_TEST_SUITE_P(Model, Outlines,
                         testing::ValuesIn(golden_models({"hf-tiny", "archs-tiny"})),
                         [](const auto& info) { return case_name(info.param); });
INSTANTIATE_TEST_SUITE_P(Drafts, Outlines,
                         testing::Values("draft-tiny/full", "draft-tiny/laguna",
                                         "draft-tiny/sliding"),
                         [](const auto& info) { return case_name(info.param); });

}  // namespace
}  // namespace bl::test
