#pragma once
#include "text/jinja/arena.h"
#include "text/jinja/parser.h"

namespace bl::jinja {

// Fills in every ScopeInfo of the tree and `parsed.unset`.
//
// Jinja decides about the variables of a scope before it runs: a name that the scope assigns before
// it reads it, and that no scope around it mentions, is a fresh variable of the scope from its
// start. Inner code that runs before the assignment (a loop, a macro) finds it undefined, even if
// the caller passed a variable of that name. An assignment in a branch of an `if` makes no fresh
// variable. (jinja2/idtracking.py is the definition.)
void analyze_scopes(ParsedTemplate& parsed, Arena& arena);

}  // namespace bl::jinja
