#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bl {

// Some outputs of a module, and the columns of the linear that compute them here.
struct AdapterPart {
  std::int32_t linear = -1;
  std::int64_t first_column = 0;        // of the linear
  std::int64_t first_row = 0;           // outputs [first_row, first_row + count) of the module …
  std::int64_t count = 0;               //
  std::vector<std::int64_t> rows = {};  // … or these, in the order of the columns
};

// A module that an adapter may have been trained on, and what stands for it in the loaded model: a
// linear, a part of a fused one, or several where the model's files hold apart what the adapter has
// fused.
struct AdapterSite {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::vector<AdapterPart> parts = {};
  std::vector<std::int32_t> inputs = {};  // which of its inputs each of the linear's is, or empty
  bool is_embedding = false;              // in: rows of the table, out: hidden
  bool replaceable = false;  // by a whole one of an adapter's: no bias, and written anew
  std::string refusal = {};  // why nothing can be added to it while the model runs, or empty
};

// Where the outputs of a linear are in the files: rows of a stored module.
struct LinearOrigin {
  std::string module;
  std::vector<std::int64_t> rows = {};  // of each output; empty: in order
  std::int64_t out = 0;                 // without padding
  bool transposed = false;              // plain weights of it are stored [in, out]
};

// All modules of a model that adapters can name, by the names that its files give them. Made in the
// first walk of the loader; a value afterwards.
class AdapterSites {
 public:
  // What a name already means stays.
  void add(const std::string& module, AdapterSite site) {
    sites_.try_emplace(module, std::move(site));
  }
  // Why neither this module nor any below it is a site, where more can be said than that it is not.
  void refuse_below(const std::string& module, std::string why) {
    refused_.try_emplace(module, std::move(why));
  }
  void add_origin(LinearOrigin origin) { origins_.push_back(std::move(origin)); }
  // A linear's outputs are columns[0], columns[1], … of its module.
  void order_outputs(std::int32_t linear, const std::vector<std::int32_t>& columns);
  // And its inputs.
  void order_inputs(std::int32_t linear, std::vector<std::int32_t> inputs);
  void set_widest(std::int64_t widest) { widest_ = widest; }

  const AdapterSite* find(const std::string& module) const;
  // What `refuse_below` said of it; null: nothing.
  const std::string* refusal(std::string module) const;
  const std::map<std::string, AdapterSite>& all() const { return sites_; }
  const LinearOrigin& origin(std::int32_t linear) const {
    return origins_[static_cast<std::size_t>(linear)];
  }
  std::int32_t linears() const { return static_cast<std::int32_t>(origins_.size()); }
  // No adapter may have a higher rank: the scratch of a step is planned for it.
  std::int64_t max_rank() const;

 private:
  std::map<std::string, AdapterSite> sites_;
  std::map<std::string, std::string> refused_;
  std::vector<LinearOrigin> origins_;  // by linear
  std::int64_t widest_ = 0;
};

}  // namespace bl
