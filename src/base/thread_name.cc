#include "base/thread_name.h"

#include <sys/prctl.h>

namespace bl {

void name_this_thread(const char* name) { prctl(PR_SET_NAME, name); }

}  // namespace bl
