#ifndef RUNTIME_PLANNER_MACHINE_SPEEDS_H_
#define RUNTIME_PLANNER_MACHINE_SPEEDS_H_

namespace megatrain {

// How fast a machine is, a second each. The defaults are those of an H200 at its power limit, in a
// host with 16 cores (docs/results).
struct MachineSpeeds {
  double matmul_flops = 690e12;     // of products of large bf16 matrices, while steps run
  double float32_flops = 45e12;     // the same in fp32
  double attention_flops = 381e12;  // of attention's products, forward and backward together
  double device_bytes = 4.25e12;    // that the device reads and writes of its own memory
  double bus_up_bytes = 55e9;       // from the host to the device
  double bus_down_bytes = 55e9;
  double bus_both_bytes = 50e9;      // each way, when both are used
  double slab_bytes = 30e9;          // one way, of memory that is not pinned, through slabs
  double host_memory_bytes = 165e9;  // that processors and copies read and write together
  double host_updates = 5.8e9;       // parameters by AdamW on the processors, beside nothing else
};

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_MACHINE_SPEEDS_H_
