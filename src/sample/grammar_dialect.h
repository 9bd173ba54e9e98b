#pragma once
#include <string>
#include <string_view>

namespace bl {

// Translates a grammar from GBNF, as llama.cpp and its grammar files write it, to the EBNF of the
// grammar library. `grammar` must be valid UTF-8.
//
// Beyond GBNF, a rule may continue on the next line anywhere, names may have dots, escapes are
// those of C, and `{,n}` means at most n times. A lone `.` is any character. Throws
// kInvalidArgument, with line and column, where the grammar is wrong or uses tokens (`<[12]>`,
// `<think>`), which are not supported.
std::string library_grammar(std::string_view grammar);

}  // namespace bl
