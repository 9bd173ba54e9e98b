#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bl {

// Some outputs of a module, and the columns of the linear that compute them in the loaded model.
struct AdapterPart {
  std::int32_t linear = -1;
  std::int64_t first_column = 0;  // in the linear
  std::int64_t first_row = 0;     // outputs [first_row, first_row + count) of the module
  std::int64_t count = 0;
  std::vector<std::int64_t> rows = {};  // if not empty: these outputs instead, column by column
};

// A module that an adapter may have been trained on, and what computes it in the loaded model: a
// linear, a part of a fused linear, or several linears if the adapter fuses what the model's files
// keep apart.
struct AdapterSite {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::vector<AdapterPart> parts = {};
  std::vector<std::int32_t> inputs =
      {};                     // the module's input behind each of the linear's; empty: equal
  bool is_embedding = false;  // `in` is rows of the table, `out` is hidden
  bool replaceable = false;   // an adapter may bring a whole matrix for it: it has no bias
  std::string refusal = {};   // why adapters cannot add to it while the model runs, or empty
};

// Where the files store the outputs of a linear: rows of a module.
struct LinearOrigin {
  std::string module;
  std::vector<std::int64_t> rows = {};  // the row of each output; empty: in order
  std::int64_t out = 0;                 // without padding
  bool transposed = false;              // plain weights are stored [in, out]
};

// All modules of a model that adapters can name, by the names that its files give them. Part of a
// LoadPlan.
class AdapterSites {
 public:
  // Does nothing if the name already has a site.
  void add(const std::string& module, AdapterSite site) {
    sites_.try_emplace(module, std::move(site));
  }
  // Records why neither this module nor any below it is a site, for a better error message.
  void refuse_below(const std::string& module, std::string why) {
    refused_.try_emplace(module, std::move(why));
  }
  void add_origin(LinearOrigin origin) { origins_.push_back(std::move(origin)); }
  // Records that a linear's outputs come in another order: columns[0], columns[1], … of its module.
  void order_outputs(std::int32_t linear, const std::vector<std::int32_t>& columns);
  // Records that a linear's inputs come in another order: inputs[0], inputs[1], … of its module.
  void order_inputs(std::int32_t linear, std::vector<std::int32_t> inputs);
  void set_widest(std::int64_t widest) { widest_ = widest; }

  const AdapterSite* find(const std::string& module) const;
  // What refuse_below() recorded for this module; null if nothing.
  const std::string* refusal(std::string module) const;
  const std::map<std::string, AdapterSite>& all() const { return sites_; }
  const LinearOrigin& origin(std::int32_t linear) const {
    return origins_[static_cast<std::size_t>(linear)];
  }
  std::int32_t linears() const { return static_cast<std::int32_t>(origins_.size()); }
  // The highest rank that an adapter may have: the scratch of a step is planned for it.
  std::int64_t max_rank() const;

 private:
  std::map<std::string, AdapterSite> sites_;
  std::map<std::string, std::string> refused_;
  std::vector<LinearOrigin> origins_;  // by linear
  std::int64_t widest_ = 0;
};

}  // namespace bl
