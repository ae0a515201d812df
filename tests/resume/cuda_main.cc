#include "runtime/trainer/cuda_backend.h"
#include "tests/resume/resume_drill.h"

int main(int argc, char** argv) {
  return megatrain::ResumeDrillMain(argc, argv, [](megatrain::FileSystem& files) {
    return megatrain::MakeCudaBackend(/*matmul_choices_path=*/"", files);
  });
}
