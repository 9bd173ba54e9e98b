// Configurations that differ from a small one in one or two options, with the logits of
// transformers for each (tools/walk_config_options.py). A configuration is computed as transformers
// computes it, or refused by an error that names the option.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "model/golden.h"
#include "support/data.h"
#include "support/thorough.h"

namespace bl::test {
namespace {

// The archive's formula: shift + scale · u with u uniform in [-1, 1), from splitmix64 with FNV-1a
// of the tensor's name as its seed.
std::vector<float> formula_values(const std::string& name, std::int64_t count, double scale,
                                  double shift) {
  std::uint64_t state = 0xCBF29CE484222325u;
  for (const char c : name) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    state += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    const double u = static_cast<double>(z >> 40) / 8388608.0 - 1.0;
    values.push_back(static_cast<float>(shift + scale * u));
  }
  return values;
}

// Tensors whose values follow from their names.
class FormulaSource : public TensorSource {
 public:
  // `tensors`: {name: [shape, scale, shift]}.
  explicit FormulaSource(const Json& tensors) {
    for (const auto& [name, spec] : tensors.items()) {
      Shape shape;
      for (const Json& size : spec[0]) shape.append(size.get<std::int64_t>());
      Tensor tensor;
      tensor.info = {DType::kF32, shape, "formula"};
      tensor.values = std::make_shared<const std::vector<float>>(formula_values(
          name, tensor.info.shape.elements(), spec[1].get<double>(), spec[2].get<double>()));
      tensors_[name] = std::move(tensor);
    }
  }
  const TensorInfo* find(std::string_view name) const override {
    const auto it = tensors_.find(name);
    return it == tensors_.end() ? nullptr : &it->second.info;
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
  }
  HostArray read(std::string_view name) const override {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) fail(ErrorCode::kNotFound, "no tensor '{}'", name);
    // The backend may use the bytes where they are, so the view owns them beyond this source.
    float* data = const_cast<float*>(it->second.values->data());
    return {view_of(data, it->second.info.shape), it->second.values};
  }

 private:
  struct Tensor {
    TensorInfo info;
    std::shared_ptr<const std::vector<float>> values;
  };
  std::map<std::string, Tensor, std::less<>> tensors_;
};

// Sets a dotted path of a document to a value; {"absent": true} removes it.
void apply_change(Json& config, const std::string& path, const Json& value) {
  Json* at = &config;
  std::size_t begin = 0;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', begin)) {
    at = &(*at)[path.substr(begin, dot - begin)];
    if (!at->is_object()) *at = Json::object();
    begin = dot + 1;
  }
  const std::string key = path.substr(begin);
  if (value == Json{{"absent", true}}) {
    at->erase(key);
  } else {
    (*at)[key] = value;
  }
}

bool is_word_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool has_word(const std::string& text, const std::string& word) {
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_word_character(text[at - 1])) &&
        (end == text.size() || !is_word_character(text[end]))) {
      return true;
    }
  }
  return false;
}

// Whether a message has, as a word of its own, an option that a case changes, or the value that it
// is given.
bool names_option(const std::string& message, const Json& changes) {
  for (const Json& change : changes) {
    const auto path = change[0].get<std::string>();
    if (has_word(message, path.substr(path.rfind('.') + 1))) return true;
    if (change[1].is_string() && has_word(message, change[1].get<std::string>())) return true;
    if (!change[1].is_object()) continue;
    for (const auto& [key, value] : change[1].items()) {
      if (has_word(message, key)) return true;
      if (value.is_string() && has_word(message, value.get<std::string>())) return true;
    }
  }
  return false;
}

class ConfigOptions : public testing::TestWithParam<std::string> {
 protected:
  // The archive has one file for each class; `case` adds changes and other tensors to its base.
  void replay(const Json& base, const Json& changed) {
    ModelFiles files;
    files.config = base["config"];
    for (const Json& change : changed["changes"]) {
      apply_change(files.config, change[0].get<std::string>(), change[1]);
    }
    Json tensors = base["tensors"];
    if (changed.contains("tensors")) tensors.merge_patch(changed["tensors"]);
    files.source = std::make_shared<FormulaSource>(tensors);
    try {
      GoldenRun run("ref", std::move(files), CacheType::kF32);
      const auto ids = base["ids"].get<std::vector<std::int32_t>>();
      expect_logits(run.logits({ids})[0], run.model().vocab(), base, changed);
    } catch (const Error& error) {
      EXPECT_TRUE(names_option(error.what(), changed["changes"]))
          << "refused without naming the option: " << error.what();
      ++refused_;
    }
    ++replayed_;
  }

  // `rows` and `columns` say which logits the archive has; `std` is the deviation of all of them.
  static void expect_logits(const std::vector<float>& logits, std::int64_t vocab, const Json& base,
                            const Json& changed) {
    std::size_t i = 0;
    for (const Json& row : base["rows"]) {
      for (const Json& column : base["columns"]) {
        const auto at =
            static_cast<std::size_t>(row.get<std::int64_t>() * vocab + column.get<std::int64_t>());
        const double expected = changed["logits"][i++].get<double>();
        ASSERT_LT(at, logits.size());
        ASSERT_LE(std::fabs(static_cast<double>(logits[at]) - expected),
                  kTolerance * changed["std"].get<double>())
            << "row " << row << ", column " << column;
      }
    }
  }

  // Of the deviation of the logits. Exact arithmetic in fp32 strays by about 1e-5.
  static constexpr double kTolerance = 1e-3;
  int replayed_ = 0;
  int refused_ = 0;
};

TEST_P(ConfigOptions, AreFollowedOrRefusedByName) {
  const Json file = read_json_file(unpacked("config-options") / (GetParam() + ".json"));
  // A part of each class still takes every path of loading.
  const std::size_t stride = BL_SANITIZED ? 8 : thorough() ? 1 : 3;
  const Json& cases = file["cases"];
  for (std::size_t i = 0; i < cases.size(); i += stride) {
    SCOPED_TRACE(cases[i]["label"].get<std::string>());
    replay(file, cases[i]);
  }
  EXPECT_GT(replayed_, 0);
  // A class that refuses most of what it is asked would pass for the wrong reason.
  EXPECT_LE(refused_ * 4, replayed_);
}

std::vector<std::string> classes() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(unpacked("config-options"))) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Class, ConfigOptions, testing::ValuesIn(classes()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return case_name(info.param);
                         });

}  // namespace
}  // namespace bl::test
