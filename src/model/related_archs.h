#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace bl {

// The end of an error message about an unknown architecture: "; known of its family are A, B", the
// nearest names first, or empty where no known name is of its family. The family of a name is what
// stands before its first digit and before "For…", "LMHead…" or "Model". A family may begin with
// the name of another one, and one typing error is forgiven. `known`: all known names.
std::string related_archs(std::string_view unknown, const std::vector<std::string>& known);

}  // namespace bl
