#include "sample/grammar_library.h"

namespace bl {

std::unique_ptr<GrammarLibrary> open_grammar_library(std::vector<std::string>,
                                                     std::vector<std::int32_t>) {
  return nullptr;
}

}  // namespace bl
