#include "runtime/trainer/cpu_backend.h"
#include "tests/resume/resume_drill.h"

int main(int argc, char** argv) {
  return megatrain::ResumeDrillMain(
      argc, argv, [](megatrain::FileSystem&) { return megatrain::MakeCpuBackend(1); });
}
