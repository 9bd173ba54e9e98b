#pragma once

namespace bl {

// Names the calling thread, as `top -H` and /proc/PID/task/TID/comm show it. Threads that it starts
// from then on inherit the name. The system keeps the first 15 characters.
void name_this_thread(const char* name);

}  // namespace bl
