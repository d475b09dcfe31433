/* commands.c - the table of commands. See commands.h. A new command: one row here, one CMD_ bit, one file. */
#include "runtime/app/commands.h"

#include "runtime/app/options.h"

#include <string.h>

/* The options that every command with a model takes. */
#define HELP_MODEL                                                                                                             \
    "Model:\n"                                                                                                                 \
    "  -m FILE  GGUF, any part of a split set (default: the model that ships with it)\n"                                       \
    "  -t N  worker threads (default: physical cores)    --pin auto|off|LIST of CPUs\n"                                        \
    "  --ctx N  context tokens    --batch N  prompt tokens per chunk (2048)\n"                                                 \
    "  --kv f32|f16|q8  cache (f16)    --arith fast|exact    --io auto|mmap|uring|pread\n"                                     \
    "  --isa auto|scalar|avx2|avx512    --layout auto|file|packed  weights in memory\n"                                        \
    "  --hugepages auto|off|thp|2m|1g    --memory SIZE  ceiling    --expert-cache SIZE\n"                                      \
    "  --numa auto|local|interleave|mirror  weights on machines with memory nodes\n"                                           \
    "Less than the whole model: --moe-top-k K  --moe-inner-k K in --moe-band A:B\n"                                            \
    "  --moe-min-weight W  --moe-rescale none|l1|l2|rho=R  --moe-scope decode|all\n"                                           \
    "  --swiglu-exps N  --swiglu-shexp N  of 128 rows, routed and shared experts\n"
#define HELP_CONTROL "While it speaks: --control PATH|off  see modchip ctl    --moe-cfg PATH|off  a file\n"
#define HELP_COMMON  "Also: --json  --quiet  --log error|warn|info|debug  --config FILE\n"

const char command_overview[] = "modchip - runs DeepSeek-V4 models (GGUF) on CPUs\n"
                                "Talk to a model\n"
                                "  run            answer one prompt\n"
                                "  chat           a conversation in the terminal\n"
                                "  ctl            settings and figures of a run or chat, while it speaks\n"
                                "Look inside\n"
                                "  inspect        what a GGUF file holds; --check reads every byte\n"
                                "  tokenize       text to token ids\n"
                                "  detokenize     token ids to text\n"
                                "  logits         raw logits of a token list\n"
                                "Measure\n"
                                "  ppl            perplexity of a text; distance to saved logits\n"
                                "  dials          what lossy settings gain and cost on a text\n"
                                "  bench          speed of prefill, decode and loading\n"
                                "  profile        the same, by operator and layer\n"
                                "  bench kernels  every kernel against its scalar twin\n"
                                "Prepare\n"
                                "  topo           this machine, and which thread runs where\n"
                                "  plan           what a model would take, and how fast it can be\n"
                                "  doctor         what helps or hinders on this machine, and what to do\n"
                                "  synth          write a random but valid model for tests\n"
                                "modchip COMMAND --help explains a command; modchip --version prints the build.\n"
                                "Every option has a variable MODCHIP_<OPTION> and a line `option = value` in\n"
                                "~/.config/modchip/config. Option beats environment beats file.\n";

static const char help_run[] =
    "modchip run [-p TEXT | -f FILE] [options]     text on standard input otherwise\n"
    "Answers once. The answer goes to stdout, reasoning and statistics to stderr.\n"
    "  -p, --prompt TEXT    -f, --file FILE    --system TEXT\n"
    "  --raw            the text as it is, without the chat form; prints every token\n"
    "  -n, --predict N  most tokens to generate (default: to the end of the context)\n"
    "  --think off|on|high|max  reasoning before the answer (on)\n"
    "  --temp T  (1.0; 0 = always the best token)    --top-p P  (1.0)\n"
    "  --top-k K  (0 = off)    --min-p P  (0 = off)    --seed N  (default: random)\n"
    "  --ignore-eos     go on after the end token\n"
    "  --chat-profile auto|0731|preview  release whose effort texts are used\n" HELP_MODEL HELP_CONTROL HELP_COMMON;

static const char help_chat[] =
    "modchip chat [options]\n"
    "A conversation; /help lists its commands. Ctrl-C stops an answer. When standard\n"
    "input is no terminal each of its lines is one turn.\n"
    "  --system TEXT    -n, --predict N  most tokens of one answer\n"
    "  --think off|on|high|max  reasoning before the answer (on)\n"
    "  --temp T  (1.0; 0 = always the best token)    --top-p P  (1.0)\n"
    "  --top-k K  (0 = off)    --min-p P  (0 = off)    --seed N  (default: random)\n"
    "  --chat-profile auto|0731|preview  release whose effort texts are used\n" HELP_MODEL HELP_CONTROL
    "Also: --quiet  --log error|warn|info|debug  --config FILE\n";

static const char help_ctl[] = "modchip ctl VERB [options]\n"
                               "Talks to a running run or chat of the same user; prints the result as JSON.\n"
                               "  get [KEY...]      settings in force, where they come from, what they cost\n"
                               "  set KEY=VALUE...  all or nothing, in force from the next token on:\n"
                               "                    moe_top_k=5 moe_inner_k=4 moe_band=16:40 moe_min_weight=0.11\n"
                               "                    moe_rescale=none|l2|l1|rho=R swiglu_exps=80 swiglu_shexp=80\n"
                               "                    moe_scope=decode|all profile=lossless|adaptive|top5|top4|...\n"
                               "  describe [KEY...] every key with its range\n"
                               "  reset             back to the settings of the start\n"
                               "  stats             tokens, speed, bytes per token, experts and rows left out\n"
                               "  watch [settings] [stats]  one line for each change or second, until Ctrl-C\n"
                               "  stop [now]        ends it as SIGTERM does: at the next token, or at once\n"
                               "  ping              is it there?\n"
                               "  --control PATH    its socket (default: that of the only one that runs)\n"
                               "Exit 2: refused, 1: nobody answers.\n" HELP_COMMON;

static const char help_logits[] = "modchip logits --tokens LIST -o FILE [--positions LIST] [options]\n"
                                  "Runs the tokens and writes raw logits: little-endian float32, one row of the\n"
                                  "vocabulary for each position. stdout: JSON with positions, vocab and argmax.\n"
                                  "  --tokens LIST     1,2,3 or @FILE\n"
                                  "  --positions LIST  ascending, from 0 (default: every position)\n"
                                  "  -o, --output FILE\n" HELP_MODEL HELP_COMMON;

static const char help_tokenize[] = "modchip tokenize [-p TEXT | -f FILE] [-m FILE]   standard input otherwise\n"
                                    "Prints the ids as a JSON array. Added tokens in the text count; no begin token is\n"
                                    "added. A GGUF file without tensors is enough.\n"
                                    "  -p, --prompt TEXT    -f, --file FILE    -m, --model FILE\n" HELP_COMMON;

static const char help_detokenize[] = "modchip detokenize [--tokens LIST | -p TEXT | -f FILE] [-m FILE]\n"
                                      "Prints the bytes of token ids, read from standard input otherwise. A JSON array is\n"
                                      "fine, so is a list with commas or white space.\n"
                                      "  --tokens LIST  1,2,3 or @FILE\n"
                                      "  -p, --prompt TEXT    -f, --file FILE    -m, --model FILE\n"
                                      "  --json         an object with `text` and `tokens` instead of the bytes\n"
                                      "Also: --quiet  --log error|warn|info|debug  --config FILE\n";

static const char help_inspect[] = "modchip inspect [FILE] [options]\n"
                                   "Header, metadata, tensor types, bytes per token, parts of a split set.\n"
                                   "  -m, --model FILE  the same as FILE\n"
                                   "  --tensors         list every tensor\n"
                                   "  --check           read every byte and look for weights that are no numbers\n" HELP_COMMON;

static const char help_ppl[] = "modchip ppl -f FILE [options]\n"
                               "Perplexity of a text: windows of N tokens, the first replaced by the begin token,\n"
                               "tokens after position N/2 scored. stdout: JSON.\n"
                               "  -f, --file FILE  the text\n"
                               "  --chunk N        window (512)    --stride N  between windows (= window)\n"
                               "  --chunks N       most windows (all that are full)\n"
                               "  --kl-save FILE   keep the logits of the scored positions\n"
                               "  --kl FILE        compare with kept logits: KL, top tokens, cosine\n" HELP_MODEL HELP_COMMON;

static const char help_dials[] = "modchip dials -f FILE [options]\n"
                                 "What lossy settings gain and cost on a text: tok/s and bytes of decoding, and the\n"
                                 "distance to lossless logits, for every profile; settings given here are one more.\n"
                                 "  -f, --file FILE  the text    --chunk N  window (512)    --stride N\n"
                                 "  --chunks N       most windows (12)    -n, --predict N  decoded tokens (32)\n"
                                 "  -r, --repeats N  of the decoding (3)\n" HELP_MODEL HELP_COMMON;

static const char help_bench[] =
    "modchip bench [options]      (see also: modchip bench kernels --help)\n"
    "Tokens per second with random ids, beside the memory bandwidth of the same run.\n"
    "  -p, --prefill N  prompt tokens (512; 0: leave it out)\n"
    "  -n, --predict N  decoded tokens (32; 0: leave it out)\n"
    "  -r, --repeats N  (5)    --seed N  of the token ids (1)\n"
    "  --depth N        start behind N tokens of context (0)\n"
    "  --load           loading only, beside what the disk gives; first touch apart\n" HELP_MODEL HELP_COMMON;

static const char help_profile[] = "modchip profile [options]\n"
                                   "Where prefill and decode spend their time: operators and layers, with bytes, GB/s,\n"
                                   "multiply-adds per cycle and the waiting at barriers. Random ids.\n"
                                   "  -p, --prefill N  prompt tokens (512; 0: leave it out)\n"
                                   "  -n, --predict N  decoded tokens (32; 0: leave it out)\n"
                                   "  --depth N        start behind N tokens of context (0)\n"
                                   "  --seed N         of the token ids (1)\n" HELP_MODEL HELP_COMMON;

static const char help_bench_kernels[] =
    "modchip bench kernels [FILTER] [options]\n"
    "Checks every kernel against its scalar twin and measures both.\n"
    "  FILTER  only kernels whose name holds this text\n"
    "  --isa auto|scalar|avx2|avx512  up to this instruction set (auto: all there are)\n" HELP_COMMON;

static const char help_topo[] = "modchip topo [options]\n"
                                "The machine as it is seen (packages, NUMA nodes, L3 groups, cores, what this\n"
                                "process may use) and which worker thread would run where.\n"
                                "  --topology XML|SYNTHETIC  another machine: an hwloc file, or a string such as\n"
                                "                     'Package:1 L3:2 Core:8 PU:2'; nothing of this one counts then\n"
                                "  --draw [text|svg]  a picture instead of the table\n"
                                "  -o, --output FILE  the picture goes there, the table to standard output\n"
                                "  -t, --threads N    workers (default: one a core)    --pin auto|off|LIST\n" HELP_COMMON;

static const char help_plan[] = "modchip plan [-m FILE] [options]\n"
                                "What loading a model with these options would take, before anything is loaded:\n"
                                "which weights are packed and which stay in the file, cache and activations,\n"
                                "whether it fits, and the decode speed that the bandwidth of the memory, measured\n"
                                "now, allows.\n"
                                "  --memory SIZE    what there is (512M, 12G, 1.5GiB; default: what is free)\n"
                                "  -m, --model FILE    -t, --threads N    --pin auto|off|LIST    --ctx N (8192)\n"
                                "  --batch N    --kv f32|f16|q8    --arith fast|exact\n"
                                "  --isa auto|scalar|avx2|avx512    --layout auto|file|packed\n"
                                "  --io auto|mmap|uring|pread    --hugepages auto|off|thp|2m|1g\n"
                                "  --numa auto|local|interleave|mirror    --swiglu-exps N    --swiglu-shexp N\n" HELP_COMMON;

static const char help_doctor[] = "modchip doctor [-m FILE] [options]\n"
                                  "Looks at CPU, cores, governor, huge pages, limits, io_uring, memory and disk, and\n"
                                  "at the settings and where they come from. Exit 1 when the model cannot run so.\n"
                                  "  --quick  measures nothing\n" HELP_MODEL HELP_COMMON;

static const char help_synth[] = "modchip synth FILE [options]    (or -o, --output FILE)\n"
                                 "Writes a random but valid model; the same options give the same bytes.\n"
                                 "  --preset nano|nano-quant|truedims  where the numbers start from (nano)\n"
                                 "  --layers N  --seed N (1)  --alignment N (32)  --hash-layers N\n"
                                 "  --ratios LIST      compression of each layer: 0, 4 or 128\n"
                                 "  --type CLASS=TYPE  stored type of embd output attn shexp exps comp ape\n"
                                 "                     indexer router hc; may be repeated\n"
                                 "  --experts LIST     routed experts by layer, down apart if wanted:\n"
                                 "                     0:iq2_xxs/q2_K,1-2:iq1_s\n"
                                 "  --float f32|f16|bf16  every matrix in this type\n"
                                 "  --set NAME=VALUE   a dimension: embd heads head_dim rot q_lora groups o_lora\n"
                                 "                     experts used ff swa idx_heads idx_dim top_k hc sinkhorn\n"
                                 "                     vocab ctx rope_base comp_base yarn yarn_ctx beta_fast\n"
                                 "                     beta_slow eps hc_eps w_scale clamp clamp_sh\n" HELP_COMMON;

static const struct app_command commands[] = {
    {"run", CMD_RUN, 0, cmd_run, help_run},
    {"chat", CMD_CHAT, 0, cmd_chat, help_chat},
    {"ctl", CMD_CTL, OPT_ARGS_MAX, cmd_ctl, help_ctl},
    {"logits", CMD_LOGITS, 0, cmd_logits, help_logits},
    {"tokenize", CMD_TOKENIZE, 0, cmd_tokenize, help_tokenize},
    {"detokenize", CMD_DETOKENIZE, 0, cmd_detokenize, help_detokenize},
    {"inspect", CMD_INSPECT, 1, cmd_inspect, help_inspect},
    {"ppl", CMD_PPL, 0, cmd_ppl, help_ppl},
    {"dials", CMD_DIALS, 0, cmd_dials, help_dials},
    {"bench kernels", CMD_BENCH_KERNELS, 1, cmd_bench_kernels, help_bench_kernels},
    {"bench", CMD_BENCH, 0, cmd_bench, help_bench},
    {"profile", CMD_PROFILE, 0, cmd_profile, help_profile},
    {"topo", CMD_TOPO, 0, cmd_topo, help_topo},
    {"plan", CMD_PLAN, 0, cmd_plan, help_plan},
    {"doctor", CMD_DOCTOR, 0, cmd_doctor, help_doctor},
    {"synth", CMD_SYNTH, 1, cmd_synth, help_synth},
};

static const char *const planned[] = {"serve", "tune", "repack"};

size_t command_count(void)
{
    return sizeof commands / sizeof commands[0];
}

const struct app_command *command_at(size_t i)
{
    return &commands[i];
}

const struct app_command *command_find(int argc, char **argv, int *n_words)
{
    const bool kernels = argc > 2 && !strcmp(argv[1], "bench") && !strcmp(argv[2], "kernels");
    const char *name = kernels ? "bench kernels" : argv[1];
    for (size_t i = 0; i < command_count(); i++)
        if (!strcmp(commands[i].name, name)) {
            *n_words = kernels ? 2 : 1;
            return &commands[i];
        }
    return NULL;
}

bool command_is_planned(const char *name)
{
    for (size_t i = 0; i < sizeof planned / sizeof planned[0]; i++)
        if (!strcmp(planned[i], name)) return true;
    return false;
}
