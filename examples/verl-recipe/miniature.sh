#!/bin/bash
# Two steps of verl's main_ppo on the embedded miniature, on a CPU: miniature.sh [OVERRIDE]...
# Its data are those of `elastic run prepare-data --preset smoke`, in DATA. What follows the first block is a CPU's.
set -e
cd "$(dirname "$0")"
: "${DATA:?the directory with train.parquet and validation.parquet}" "${MODEL:?the miniature}" "${OUT:=$(mktemp -d)}"
export VERL_PLATFORM=cpu VLLM_TARGET_DEVICE=cpu VLLM_CPU_KVCACHE_SPACE=1 VLLM_ENABLE_V1_MULTIPROCESSING=0 TQ_NUM_THREADS=1
export ELASTIC_MODULES=$PWD ELASTIC_IMPORTS=mine:Shortest
python -m verl.trainer.main_ppo --config-dir "$PWD" --config-name recipe \
    elastic.budget=48+32 elastic.reward=mine:Shortest '~elastic.reward_settings' elastic.rollout_seeds=request \
    "data.train_files=$DATA/train.parquet" "data.val_files=$DATA/validation.parquet" "actor_rollout_ref.model.path=$MODEL" \
    data.max_prompt_length=32 data.max_response_length=81 data.train_batch_size=8 data.dataloader_num_workers=0 \
    actor_rollout_ref.actor.ppo_mini_batch_size=8 actor_rollout_ref.actor.optim.lr=1e-4 \
    actor_rollout_ref.rollout.n=4 actor_rollout_ref.rollout.agent.num_workers=1 \
    trainer.total_training_steps=2 trainer.test_freq=-1 trainer.val_before_train=false trainer.save_freq=2 \
    trainer.default_local_dir="$OUT" hydra.run.dir="$OUT" trainer.n_gpus_per_node=1 trainer.logger=[console] \
    \
    trainer.device=cpu transfer_queue.backend.SimpleStorage.num_data_storage_units=1 +ray_kwargs.ray_init.num_gpus=1 ray_kwargs.ray_init.num_cpus=32 \
    actor_rollout_ref.actor.strategy=fsdp2 actor_rollout_ref.actor.use_dynamic_bsz=true \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4096 \
    actor_rollout_ref.actor.fsdp_config.use_torch_compile=false \
    +actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32 \
    actor_rollout_ref.model.use_remove_padding=false actor_rollout_ref.model.enable_gradient_checkpointing=false \
    +actor_rollout_ref.model.override_config.attn_implementation=sdpa \
    algorithm.rollout_correction.bypass_mode=true \
    actor_rollout_ref.rollout.dtype=float32 actor_rollout_ref.rollout.max_model_len=113 \
    actor_rollout_ref.rollout.enforce_eager=true actor_rollout_ref.rollout.free_cache_engine=false \
    +actor_rollout_ref.rollout.enable_sleep_mode=false actor_rollout_ref.rollout.enable_chunked_prefill=false \
    +actor_rollout_ref.rollout.engine_kwargs.vllm.block_size=32 \
    +actor_rollout_ref.rollout.engine_kwargs.vllm.distributed_executor_backend=uni \
    actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=32 "$@"
