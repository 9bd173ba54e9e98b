#pragma once
#include <string>

#include "engine/model_text.h"
#include "engine/open_model.h"
#include "usage_error.h"

namespace bl {

// The model of a command that needs its tokenizer alone.
struct TextOptions {
  std::string model;
  std::string archs;

  template <class V>
  void visit(V&& v) {
    v.group("Model");
    v(model, {"-m,--model", "DIR", "model folder or .gguf file"});
    v(archs,
      {"--archs", "DIR", "folder of architecture files to use instead of the built-in ones"});
  }
  ModelText open() const {
    if (model.empty()) fail_usage("-m DIR is missing: the model folder or .gguf file");
    return ModelText(load_tokenizer(model, archs), model);
  }
};

}  // namespace bl
