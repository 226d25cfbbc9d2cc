// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.samples.inference.engine.InferenceEngine;
import io.fluxccl.samples.inference.engine.ModelOptions;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.regex.Pattern;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import reactor.core.publisher.Flux;

/**
 * Requests of public bug reports of other servers, sent to the small model on one rank. README.md
 * lists the reports. One server answers all requests: a request that breaks it fails the next ones.
 */
@Timeout(120)
class ReportedFaultsTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final Pattern REPEATED = Pattern.compile("(\\d+)x(\\d+)");

  private static final HttpClient CLIENT =
      HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

  private static InferenceEngine engine;
  private static CompletableFuture<Void> serving;
  private static HttpApi api;

  @BeforeAll
  static void serve() throws IOException {
    engine = new InferenceEngine(Path.of("model"), new ModelOptions(64, 4, 128, 16));
    RankGroup group = RankGroup.local(1, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST)).get(0);
    serving = engine.serve(Flux.just(group)).toFuture();
    api = new HttpApi(engine, engine.chatTemplate(), "127.0.0.1", 0);
    api.start().block(LONG);
    Awaitility.await().atMost(LONG).until(() -> engine.status().ready());
  }

  @AfterAll
  static void close() {
    api.stop(LONG).block(LONG);
    engine.close();
    assertThat(serving).succeedsWithin(LONG);
    List<String> blocked = List.copyOf(BlockedThreads.CALLS);
    BlockedThreads.CALLS.clear();
    assertThat(blocked).isEmpty();
  }

  /** Tokens: 1 ends a text, 12 is a line break, 99 is "a", 242 is the first byte of an emoji. */
  @ParameterizedTest(name = "{0}")
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '`',
      value = {
        // Prompts.
        "vllm#7632 | {'prompt':['']} | 200 | 'prompt_tokens':1,",
        "vllm#40302 | {'prompt':[600x99]} | 400 | 600 tokens; 1 to 511 are possible",
        "vllm#16445 | {'prompt':[512x99]} | 400 | 512 tokens; 1 to 511 are possible",
        "vllm#42474 | {'prompt':[508x99],'max_tokens':65535,'ignore_eos':true} | 200 |"
            + " 'completion_tokens':4, & 'length'",
        "vllm#26797 | {'prompt':[5279552648203111001]} | 400 | 'param':'prompt'",
        "ollama#6188 | {'prompt':[[99,12],[99]]} | 200 | 'prompt_tokens':3, & 'index':1",
        "lmdeploy#2395 | {'prompt':['One','Two'],'echo':true,'max_tokens':1} | 200 |"
            + " 'index':0,'logprobs':null,'finish_reason':'length','text':'One &"
            + " 'index':1,'logprobs':null,'finish_reason':'length','text':'Two",
        "llama.cpp#25548 | {'prompt':'a\\u0000a\\u0000a'} | 200 | 'prompt_tokens':6,",
        "evidenceloom#50 | {'prompt':'a\\ud83da'} | 200 | 'prompt_tokens'",
        // Sampling.
        "vllm#3341 | {'prompt':'a','top_k':0.01} | 400 | 'param':'top_k'",
        "sendnn-inference#542 | {'prompt':'a','top_k':9999999} | 200 | 'choices'",
        "LlamaFactory#10709 | {'prompt':'a','top_p':0.0} | 400 | 'param':'top_p'",
        "vllm#1623 | {'prompt':'a','temperature':0.0001,'top_p':0.0001} | 200 | 'choices'",
        "sglang#7670 | {'prompt':'a','logit_bias':{'2048':5}} | 400 | 'param':'logit_bias'",
        "vllm#5963 | {'prompt':'a','logit_bias':{'AI':-100}} | 400 | 'param':'logit_bias'",
        "vllm#4529 | {'prompt':'a','seed':18446744073709551616} | 400 | 'param':'seed'",
        "llama-cpp-python#1906 | {CHAT,'n':2,'max_tokens':1} | 200 | 'index':1",
        "FastFlowLM#554 | {CHAT,'response_format':{'type':'json_object'}} | 400 |"
            + " 'param':'response_format'",
        // Ends.
        "ollama#3629 | {'prompt':'a','stop':[],'logit_bias':{'1':100}} | 200 |"
            + " 'finish_reason':'stop','text':'' & 'completion_tokens':0,",
        "VisualChatGPTStudio#92 | {CHAT,'stop':''} | 400 | 'param':'stop'",
        "TGI#1254 | {'prompt':'b','stream':true,'stop':['aaab','aaaa'],'logit_bias':{'99':100}}"
            + " | 200 | 'finish_reason':'stop' & !'text':'a",
        "omlx#2386 | {'prompt':'b','stop':['aab','aaab','ba'],'logit_bias':{'99':100}} | 200 |"
            + " 'finish_reason':'length','text':'aaaaaaaaaaaaaaaa'",
        "vllm#46243 | {'prompt':'a','min_tokens':4,'logit_bias':{'1':100}} | 200 |"
            + " 'completion_tokens':4, & 'stop'",
        "vllm#4589 | {'prompt':'a','ignore_eos':true,'logit_bias':{'1':100}} | 200 |"
            + " 'completion_tokens':16, & 'length'",
        "gonka#1170 | {'prompt':'a','min_tokens':1,'stop_token_ids':[2048]} | 400 |"
            + " 'param':'stop_token_ids'",
        "TGI#2844 | {CHAT,'max_completion_tokens':2,'ignore_eos':true} | 200 |"
            + " 'completion_tokens':2,",
        "vllm#6521 | {'prompt':'a','echo':true,'max_tokens':0} | 400 | 'param':'max_tokens'",
        // Logprobs.
        "vllm#10234 | {'prompt':'a','echo':true,'logprobs':1,'top_k':1} | 400 | 'param':'echo'",
        "vllm#3707 | {'prompt':'a','logprobs':0} | 200 | 'token_logprobs':[- & 'top_logprobs':null",
        "llama.cpp#11346 | {'prompt':'a','logprobs':1,'max_tokens':1} | 200 |"
            + " 'token_logprobs':[- & 'top_logprobs':[{",
        "sglang#4440 | {CHAT,'logprobs':true,'max_tokens':1} | 200 | 'top_logprobs':[]}]",
        "sglang#5984 | {'prompt':'a','temperature':0.01,'top_p':0.3,'logprobs':5} | 200 |"
            + " 'top_logprobs':[{ & !Infinity",
        // Streams.
        "llama.cpp#11738 | {'prompt':'a','max_tokens':3,'logit_bias':{'242':100}} | 200 |"
            + " 'text':'\ufffd\ufffd\ufffd'",
        "vllm#48853 | {'prompt':[50x99,242],'stream':true,'max_tokens':3,'logit_bias':{'99':100}}"
            + " | 200 | 'text':'a'} & !aa'}",
        "vllm#36379 | {CHAT,'max_tokens':2,'stream':true,'stream_options':{}} | 200 |"
            + " [DONE] & !usage",
        "vllm#7262 | {CHAT,'max_tokens':2,'stream':true,'stream_options':{'include_usage':true}}"
            + " | 200 | 'usage':null,'choices':[{ & 'completion_tokens':2, & },'choices':[]",
        "llama.cpp#9459 | {CHAT,'stream':true,'max_tokens':1} | 200 | data: [DONE]",
        "lemonade#350 | {CHAT,'stream':true,'max_tokens':1} | 200 |"
            + " 'delta':{'role':'assistant','content':''}",
        // Bodies.
        "sglang#3805 | {'prompt':'a', x} | 400 | 'invalid_json'",
        "mlx-serve#257 | {'prompt':'a','model':'gpt-4o'} | 404 | 'model_not_found'",
        "langchaingo#667 | {'messages':[{'role':'user','content':[{'text':'Say','type':'text'}]}],"
            + "'max_tokens':2} | 200 | 'assistant'",
        "cloudflare-os#36 | {'messages':[{'role':'developer','content':'Say'}],'max_tokens':2}"
            + " | 200 | 'assistant'"
      })
  void shouldAnswerTheRequestOfAReportOrNameItsFault(
      String report, String request, int status, String parts) throws Exception {
    HttpResponse<String> answer = post(request);

    assertThat(answer.statusCode()).as(answer.body()).isEqualTo(status);
    for (String part : parts.replace('\'', '"').split(" & ")) {
      if (part.startsWith("!")) {
        assertThat(answer.body()).doesNotContain(part.substring(1));
      } else {
        assertThat(answer.body()).contains(part);
      }
    }
  }

  private static HttpResponse<String> post(String request) throws Exception {
    String chat = "'messages':[{'role':'user','content':'Say'}]";
    String body =
        REPEATED
            .matcher(request.replace("CHAT", chat))
            .replaceAll(
                found ->
                    String.join(
                        ",",
                        Collections.nCopies(Integer.parseInt(found.group(1)), found.group(2))));
    String path = body.contains("'messages'") ? "/v1/chat/completions" : "/v1/completions";
    HttpRequest.Builder post =
        HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + api.port() + path))
            .timeout(LONG)
            .POST(BodyPublishers.ofString(body.replace('\'', '"')));
    return CLIENT.send(post.build(), BodyHandlers.ofString());
  }
}
