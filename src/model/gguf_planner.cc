#include "model/gguf_planner.h"

#include <charconv>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "model/numbered_name.h"

namespace bl {
namespace {

constexpr std::int64_t kMaxStacked = 65536;

// "blk.12.attn_q.weight" → 12 and "blk.{i}.attn_q.weight"; −1 and the name itself otherwise.
std::pair<std::int64_t, std::string> split_block(std::string_view name) {
  constexpr std::string_view kBlock = "blk.";
  if (!name.starts_with(kBlock)) return {-1, std::string(name)};
  std::int64_t number = -1;
  const char* begin = name.data() + kBlock.size();
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, number);
  if (error != std::errc{} || stop == end || *stop != '.' || number < 0 ||
      (*begin == '0' && stop != begin + 1)) {
    return {-1, std::string(name)};
  }
  return {number, std::string(kBlock) + "{i}" + std::string(stop, end)};
}

}  // namespace

GgufPlanner::GgufPlanner(GgufSource& source, const GgufFile& file, const GgufMetadata& metadata)
    : source_(source),
      file_(file),
      metadata_(metadata),
      layers_(metadata.layers()),
      blocks_(metadata.required_size("block_count")) {
  for (const GgufJoin& join : metadata.arch().joins) {
    for (const std::string& name : join.of) joined_[name] = true;
  }
}

void GgufPlanner::wrong_shape(const GgufTensor& tensor, std::string_view wanted) const {
  fail(ErrorCode::kInvalidFile, "{}: tensor {} has shape {}, but {} is expected", file_.name(),
       tensor.name, tensor.shape.to_string(), wanted);
}

void GgufPlanner::check_readable(const GgufTensor& tensor) const {
  if (info_of(tensor.type).readable) return;
  fail(ErrorCode::kUnsupported, "{}: tensor {} is stored as {}; types that can be read are {}",
       file_.name(), tensor.name, info_of(tensor.type).name, readable_gguf_types());
}

// `by_element`: treat each value of a vector as a row, because their order will change.
GgufPlanner::Extent GgufPlanner::extent_of(const GgufTensor& tensor, bool by_element) const {
  const Shape& shape = tensor.shape;
  Extent extent;
  extent.vector = shape.rank() == 1 || tensor.name.ends_with(".bias");
  const int stack_rank = extent.vector ? 2 : 3;
  if (shape.rank() > stack_rank) wrong_shape(tensor, "a smaller number of dimensions");
  extent.stacked = shape.rank() == stack_rank;
  if (extent.stacked) extent.outer = shape[0];
  extent.columns = shape[shape.rank() - 1];
  if (!extent.vector) extent.rows = shape[shape.rank() - 2];
  if (extent.vector && by_element) {
    if (info_of(tensor.type).group_elements != 1) {
      fail(ErrorCode::kUnsupported,
           "{}: tensor {}: a vector stored as {}; F32, F16 or BF16 expected", file_.name(),
           tensor.name, info_of(tensor.type).name);
    }
    extent.rows = extent.columns;
    extent.columns = 1;
  }
  return extent;
}

std::int64_t GgufPlanner::part_rows(const GgufTensor& tensor, const std::string& rows,
                                    std::int64_t of) const {
  std::int64_t count = 0;
  if (rows == "half") count = of / 2;
  if (rows == "query") count = metadata_.heads() * metadata_.head_dim();
  if (rows == "key" || rows == "value") count = metadata_.kv_heads() * metadata_.head_dim();
  if (count <= 0 || count > of) wrong_shape(tensor, "rows for queries, keys and values");
  return count;
}

// Returns the number of heads whose rows must be reordered; 0 where rows stay as they are.
std::int64_t GgufPlanner::rotary_heads(const GgufTensor& tensor, GgufTensorRule::Rotary rotary,
                                       std::int64_t rows) const {
  if (rotary == GgufTensorRule::Rotary::kAsStored) return 0;
  const std::int64_t heads =
      rotary == GgufTensorRule::Rotary::kQuery ? metadata_.heads() : metadata_.kv_heads();
  if (rows % (2 * heads) != 0) {
    wrong_shape(tensor, fmt::format("rows for {} heads of even size", heads));
  }
  return heads;
}

// Adds one tensor, or one per expert if the name contains {e}, shaped after the stack.
void GgufPlanner::add_expert_tensors(const GgufTensor& tensor, GgufRecipe recipe,
                                     const Extent& extent, const std::string& to) {
  const auto shape_of = [&](std::int64_t outer) {
    Shape shape;
    if (outer > 0) shape.append(outer);
    std::int64_t rows = recipe.rows;
    std::int64_t columns = recipe.columns;
    if (recipe.transpose) std::swap(rows, columns);
    if (extent.vector) {
      shape.append(rows * columns);
    } else {
      shape.append(rows);
      shape.append(columns);
    }
    return shape;
  };
  if (to.find("{e}") == std::string::npos) {
    recipe.outer = extent.outer;
    recipe.shape = shape_of(extent.stacked ? extent.outer : 0);
    source_.add(to, std::move(recipe));
    return;
  }
  const std::int64_t experts = metadata_.required_size("expert_count");
  if (!extent.stacked || extent.outer != experts || experts > kMaxStacked) {
    wrong_shape(tensor, fmt::format("[{} experts, …]", experts));
  }
  recipe.outer = 1;
  recipe.shape = shape_of(0);
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    recipe.first_outer = expert;
    source_.add(with_number(to, "{e}", expert), recipe);
  }
}

void GgufPlanner::place_by_rule(const GgufTensor& tensor, const GgufTensorRule& rule,
                                std::string_view suffix) {
  check_readable(tensor);
  using Rotary = GgufTensorRule::Rotary;
  const bool rotary = rule.rotary != Rotary::kAsStored;
  const Extent extent = extent_of(tensor, rotary || !rule.parts.empty());
  GgufRecipe recipe{.sources = {&tensor},
                    .rows = extent.rows,
                    .columns = extent.columns,
                    .source_rows = extent.rows,
                    .transpose = rule.transpose && !extent.vector,
                    .add = rule.add};
  const std::int64_t block = split_block(tensor.name).first;
  const auto target = [&](const std::string& to) {
    return with_number(to, "{i}", block) + std::string(suffix);
  };
  if (rotary) {
    recipe.rotary_heads =
        rule.rotary == GgufTensorRule::Rotary::kQuery ? metadata_.heads() : metadata_.kv_heads();
    if (recipe.rows % (2 * recipe.rotary_heads) != 0) {
      wrong_shape(tensor, fmt::format("rows for {} heads of even size", recipe.rotary_heads));
    }
  }
  if (rule.flatten) {
    recipe.outer = extent.outer;
    recipe.shape = Shape{extent.outer * (recipe.transpose ? extent.columns : extent.rows),
                         recipe.transpose ? extent.rows : extent.columns};
    source_.add(target(rule.to), std::move(recipe));
    return;
  }
  if (rule.parts.empty()) {
    add_expert_tensors(tensor, std::move(recipe), extent, target(rule.to));
    return;
  }
  std::int64_t row = 0;
  for (const GgufTensorRule::Part& part : rule.parts) {
    recipe.first_row = row;
    recipe.rows = part_rows(tensor, part.rows, extent.rows);
    recipe.rotary_heads = rotary_heads(tensor, part.rotary, recipe.rows);
    row += recipe.rows;
    if (row > extent.rows) wrong_shape(tensor, "rows for queries, keys and values");
    add_expert_tensors(tensor, recipe, extent, target(part.to));
  }
  if (row != extent.rows) wrong_shape(tensor, fmt::format("{} rows", row));
}

void GgufPlanner::place_join(const GgufJoin& join, std::int64_t block) {
  std::vector<const GgufTensor*> sources;
  for (const std::string& name : join.of) {
    const GgufTensor* tensor = file_.find_tensor(with_number(name, "{i}", block));
    if (tensor != nullptr) sources.push_back(tensor);
  }
  if (sources.empty()) return;
  if (sources.size() != join.of.size()) {
    fail(ErrorCode::kInvalidFile, "{}: tensor {} is there without the ones it belongs to ({})",
         file_.name(), sources[0]->name, fmt::join(join.of, ", "));
  }
  for (const GgufTensor* tensor : sources) {
    check_readable(*tensor);
    if (tensor->shape != sources[0]->shape) {
      wrong_shape(*tensor, "that of " + sources[0]->name);
    }
  }
  Extent extent = extent_of(*sources[0], true);
  const auto count = static_cast<std::int64_t>(sources.size());
  GgufRecipe recipe{.sources = std::move(sources),
                    .rows = extent.rows * count,
                    .columns = extent.columns,
                    .source_rows = extent.rows,
                    .interleave = join.interleave,
                    .transpose = join.transpose && !extent.vector};
  for (const GgufTensor* tensor : recipe.sources) extent_of(*tensor, true);
  const GgufTensor& first = *recipe.sources[0];
  add_expert_tensors(first, std::move(recipe), extent, with_number(join.to, "{i}", block));
}

void GgufPlanner::place(const GgufTensor& tensor) {
  const auto [block, name] = split_block(tensor.name);
  if (block >= layers_ && block < blocks_) return;  // a layer that only drafts further tokens
  if (block >= blocks_) {
    fail(ErrorCode::kInvalidFile, "{}: tensor {}, but metadata says {} blocks", file_.name(),
         tensor.name, blocks_);
  }
  if (joined_.contains(name)) return;
  if (const GgufTensorRule* rule = metadata_.arch().rule_for(name)) {
    if (rule->to.empty() && rule->parts.empty()) return;
    return place_by_rule(tensor, *rule, "");
  }
  const std::size_t dot = name.rfind('.');
  if (dot != std::string::npos) {
    const GgufTensorRule* rule = metadata_.arch().rule_for(std::string_view(name).substr(0, dot));
    if (rule != nullptr) {
      if (rule->to.empty() && rule->parts.empty()) return;
      return place_by_rule(tensor, *rule, std::string_view(name).substr(dot));
    }
  }
  fail(ErrorCode::kUnsupported,
       "{}: tensor {} has no place in the architecture (archs/{} names those that have)",
       file_.name(), tensor.name, metadata_.arch().name);
}

void GgufPlanner::place_list(const std::string& to, const std::string& key, const Shape& shape) {
  const std::string full = metadata_.full_key(key);
  const GgufValue* value = file_.find(full);
  if (value == nullptr) return;
  const auto* list = std::get_if<GgufValue::Array>(&value->value);
  if (list == nullptr || list->element != GgufValueType::kF32 ||
      list->count < static_cast<std::uint64_t>(layers_)) {
    fail(ErrorCode::kInvalidFile, "{}: metadata key {} must be a list of {} floats (f32)",
         file_.name(), full, layers_);
  }
  for (std::int64_t block = 0; block < layers_; ++block) {
    const GgufTensor& tensor = source_.lists_.emplace_back(
        GgufTensor{.name = full,
                   .type = GgufType::kF32,
                   .shape = Shape{1},
                   .bytes = list->bytes.subspan(static_cast<std::size_t>(block) * 4, 4)});
    GgufRecipe recipe{.shape = shape, .sources = {&tensor}};
    source_.add(with_number(to, "{i}", block), std::move(recipe));
  }
}

void GgufPlanner::plan() {
  for (const GgufTensor& tensor : file_.tensors()) place(tensor);
  for (const auto& [to, key] : metadata_.arch().values) place_list(to, key, Shape{1});
  for (const auto& [to, key] : metadata_.arch().scalars) place_list(to, key, Shape{});
  for (const GgufJoin& join : metadata_.arch().joins) {
    if (join.to.find("{i}") == std::string::npos) {
      place_join(join, -1);
      continue;
    }
    for (std::int64_t block = 0; block < layers_; ++block) place_join(join, block);
  }
}

}  // namespace bl
